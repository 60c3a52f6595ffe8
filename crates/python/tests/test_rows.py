"""The behaviour rows, through the Python package."""

import collections
import pathlib
import re
import tomllib

import pytest
import rows

CASES = pathlib.Path(__file__).parents[3] / "cases"
TOPICS = sorted(CASES.glob("*.toml"))


def load(text):
    """The rows are TOML 1.1, which knows `\\xNN`; Python reads TOML 1.0, which writes `\\u00NN`."""
    return tomllib.loads(re.sub(r"(?<!\\)((?:\\\\)*)\\x([0-9A-Fa-f]{2})", r"\1\\u00\2", text))


def diverging():
    """Rows that the engine fails on purpose."""
    text = (CASES.parent / "divergences.toml").read_text()
    return {entry["case"] for entry in load(text).get("divergence", []) if "engine" in entry["backends"]}


@pytest.mark.parametrize("ref_walk_only", [False, True], ids=["rcu", "ref"])
def test_rows(ref_walk_only, record_property, capsys):
    ran, failed, skipped, expected = 0, [], collections.Counter(), diverging()
    assert TOPICS, f"no rows in {CASES}"
    for topic in TOPICS:
        for case in load(topic.read_text())["case"]:
            name = f"{topic.stem}/{case['name']}"
            try:
                rows.Row(case, ref_walk_only=ref_walk_only).run()
            except rows.Skip as reason:
                skipped[str(reason)] += 1
                continue
            except Exception as problem:
                if name not in expected:
                    failed.append(f"{name}: {type(problem).__name__}: {problem}")
                    continue
            ran += 1
    lines = [f"{ran} rows ran, {len(failed)} failed, {sum(skipped.values())} skipped"]
    lines += [f"  {count:4} skipped: {reason}" for reason, count in skipped.most_common()]
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not failed, "\n".join(failed)
    assert ran > 9 * sum(skipped.values()), "too many rows were skipped"
