// Axes: a scale from values to places, ticks, and the frame that plots share.

const FRAME = { left: 62, right: 14, top: 12, bottom: 40 };

/** A function from [low, high] to [from, to], by logarithms where `log`. */
function scale(low, high, from, to, log = false) {
  const at = log ? Math.log : (x) => x;
  const span = at(high) - at(low) || 1;
  return (value) => from + ((at(value) - at(low)) / span) * (to - from);
}

/** At most about `most` round numbers from 0 to `high`. */
function roundTicks(high, most) {
  const rough = high / most, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? power;
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** Powers of `base` in [low, high], thinned to at most `most`. */
function powerTicks(low, high, base, most) {
  const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9), last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / most));
  const ticks = [];
  for (let k = first; k <= last; k += stride) ticks.push(base ** k);
  return ticks;
}

/** Axis lines, tick marks with their texts, and names of both axes. */
function axes(width, height, xs, ys, xName, yName) {
  const bottom = height - FRAME.bottom, right = width - FRAME.right;
  return draw("g", { "aria-hidden": "true" },
    draw("path", { class: "axis", fill: "none", d: `M${FRAME.left} ${FRAME.top}V${bottom}H${right}` }),
    xs.map(([x, text]) => [draw("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }),
      draw("text", { class: "tick", x, y: bottom + 16, "text-anchor": "middle" }, text)]),
    ys.map(([y, text]) => [draw("line", { class: "axis", x1: FRAME.left - 4, x2: FRAME.left, y1: y, y2: y }),
      draw("text", { class: "tick", x: FRAME.left - 7, y: y + 4, "text-anchor": "end" }, text)]),
    draw("text", { class: "tick", x: (FRAME.left + right) / 2, y: height - 6, "text-anchor": "middle" }, xName),
    draw("text", { class: "tick", x: 11, y: (FRAME.top + bottom) / 2, "text-anchor": "middle",
      transform: `rotate(-90 11 ${(FRAME.top + bottom) / 2})` }, yName));
}

/** Calls `read(x)` for the place under the mouse or finger, `select(x, x)` for a range that the mouse drags over. */
function readByPointer(host, read, select) {
  let from = null;
  const place = (event) => event.clientX - host.getBoundingClientRect().left;
  const band = make("div", { class: "band", hidden: true });
  const far = (event) => from !== null && Math.abs(place(event) - from) > 8;
  fill(host, {
    onpointerdown: (event) => {
      if (event.pointerType === "mouse" && event.button === 0) { from = place(event); }
      read(place(event));
    },
    onpointermove: (event) => {
      if (!event.buttons) from = null;
      if (!far(event)) { read(place(event)); return; }
      host.setPointerCapture(event.pointerId);
      host.append(band);
      band.hidden = false;
      band.style.left = `${Math.min(from, place(event))}px`;
      band.style.width = `${Math.abs(place(event) - from)}px`;
    },
    onpointerup: (event) => {
      const [low, high] = [from, place(event)].sort((a, b) => a - b), dragged = far(event);
      from = null;
      band.remove();
      if (dragged) select(low, high);
    },
  }, []);
}

/** Makes `element` a button for mouse and keyboard. */
function pressable(element, label, press) {
  fill(element, { role: "button", tabindex: 0, "aria-label": label, onclick: press,
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press();
    } }, []);
  return element;
}

const tint = (k) => (k === null || k === undefined ? "sx" : `s${k % 8}`);
