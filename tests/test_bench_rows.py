"""Benches of rows: those that are not measured again stay."""

import json
from types import SimpleNamespace

from bench import rowwise


def test_only_keeps_the_rows_that_are_not_measured_again(tmp_path, capsys):
    rows = [SimpleNamespace(name="allgather a"), SimpleNamespace(name="allgather b")]
    output = tmp_path / "rows.json"

    def drive(value, *arguments):
        def measure(row, runs):
            return {"name": row.name, "value": value, "wrong": ""}

        def table(document):
            return ", ".join(f"{row['name']} {row['value']}" for row in document["rows"])

        return rowwise.drive("rows", "", [*arguments, "-o", str(output)], rows, measure, measure, table, 1)

    assert drive(1) == 0
    assert drive(2, "--only", "b") == 0
    document = json.loads(output.read_text())
    assert [(row["name"], row["value"]) for row in document["rows"]] == [("allgather a", 1), ("allgather b", 2)]
    assert output.with_suffix(".md").read_text() == "allgather a 1, allgather b 2"
    document["setting"]["commit"] = "earlier"
    output.write_text(json.dumps(document))
    assert drive(3, "--only", "a") == 0
    assert "Of commit" in output.with_suffix(".md").read_text()
    assert "allgather b 2" in capsys.readouterr().out
