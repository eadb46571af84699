// Numbers as the tables of the command line print them: three digits, no powers of ten; 1 KB is 1024 bytes.

function number(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  return size >= 1e-3 ? String(Number(value.toPrecision(3))) : value.toFixed(6).replace(/0+$/, "");
}

const SIZES = [["TB", 2 ** 40], ["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]];

function sizeText(bytes) {
  const unit = SIZES.find(([, scale]) => bytes >= scale);
  return unit ? `${number(bytes / unit[1])} ${unit[0]}` : `${number(bytes)} B`;
}

function timeText(seconds) {
  if (seconds >= 1) return `${number(seconds)} s`;
  if (seconds >= 1e-3) return `${number(seconds * 1e3)} ms`;
  return seconds >= 1e-6 ? `${number(seconds * 1e6)} µs` : `${number(seconds * 1e9)} ns`;
}

const percent = (share) => `${number(share * 100)}%`;
const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
