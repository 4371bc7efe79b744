"""pteron inspect --html: what is on the page, and that a browser shows it where one is installed."""
import html.parser
import json
import re
import shutil
import subprocess

import pytest

BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


@pytest.fixture
def page(pteron, sample, tmp_path):
    def make(name, *words):
        done = pteron("compile", sample / name / "model.pt2", "-o", tmp_path / "m.pte", *words)
        assert done.returncode == 0, done.stderr
        done = pteron("inspect", tmp_path / "m.pte", "--html", tmp_path / "m.html")
        assert done.returncode == 0 and f"wrote {tmp_path / 'm.html'}" in done.stdout, done.stderr
        return (tmp_path / "m.html").read_text()
    return make


def data_of(text):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S).group(1))


@pytest.mark.parametrize("name", ["mlp_float32", "cnn", "cond", "state_window", "nested_inputs_outputs", "while_loop"])
@pytest.mark.parametrize("words", [[], ["--backend", "portable"], ["--profile", "executorch"]])
def test_the_page_has_what_the_program_has(pteron, page, tmp_path, name, words):
    if name == "while_loop" and "executorch" in words:
        pytest.skip("the official runtime has no loops")
    text = page(name, *words)
    data = data_of(text)
    described = json.loads(pteron("inspect", tmp_path / "m.pte", "--json").stdout)["methods"]
    for method in described:
        shown = next(m for m in data["methods"] if m["name"] == method["name"])
        assert len(shown["inputs"]) == len(method["inputs"]) and len(shown["outputs"]) == len(method["outputs"])
        for port, value in zip(method["inputs"], shown["inputs"]):
            assert shown["values"][value]["name"] == port["name"]
    for method in data["methods"]:
        written = set(method["inputs"])
        if any("jump" in step["op"] for step in method["steps"]):  # what runs before what is not the order
            written |= {value for step in method["steps"] for value in step["outs"]}
        for step in method["steps"]:
            assert len(step["from"]) == len(step["ins"])
            for value in step["from"]:
                role = method["values"][value]["role"]
                assert value in written or role in ("constant", "state", "number", "input", "weight in a data file"), (name, step, value)
            written |= set(step["outs"])
        for value in method["outputs_from"]:
            assert value in written or method["values"][value]["role"] in ("constant", "state", "number", "weight in a data file"), (name, value)
        assert method["arena_devices"] == ["cpu"] * len(method["arenas"])
        for a in method["buffers"]:
            assert a["offset"] + a["bytes"] <= method["arenas"][a["arena"]] and 0 <= a["first"] <= a["last"] <= len(method["steps"]) + 1
    if not words and name == "mlp_float32":  # what the engine does is shown as well
        inside = next(step["inside"] for step in data["methods"][0]["steps"] if "inside" in step)
        assert "linear" in json.dumps(data["methods"][inside]["steps"]) and "delegate 0" in data["methods"][inside]["name"]
    if words == ["--backend", "portable"] and name == "mlp_float32":
        assert [s["op"] for s in data["methods"][0]["steps"]].count("aten::linear.out") == 3
        assert data["methods"][0]["steps"][0]["source"] == "modules/linear.py:134"
        steps = data["methods"][0]["steps"]
        assert all(set(a["outs"]) & set(b["from"]) for a, b in zip(steps, steps[1:]))  # a chain, also where an operator works in place


def test_nothing_is_loaded_from_elsewhere(page):
    text = page("cnn")

    class Parser(html.parser.HTMLParser):
        found = []

        def handle_starttag(self, tag, attributes):
            self.found += [(tag, name) for name, _ in attributes if name in ("src", "href")]
    Parser().feed(text)
    assert not Parser.found and set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"} and "@import" not in text


def test_texts_of_the_program_stay_data(pteron, sample, tmp_path):
    """A name that would end the script, or begin one."""
    evil = "</script><script>alert(1)</script>"
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "--constant", f"get_text={evil}", "-o", tmp_path / "m.pte")
    assert done.returncode == 0
    assert pteron("inspect", tmp_path / "m.pte", "--html", tmp_path / "m.html").returncode == 0
    text = (tmp_path / "m.html").read_text()
    assert text.count("</script>") == 2 and "alert(1)" in json.dumps(data_of(text))


@pytest.mark.parametrize("words, code, said", [(["{p}", "--html", "{p}"], 2, "is the input"), (["{p}", "--html", ""], 2, "names no file"), (["{m}", "--html", "{o}"], 3, "a .pt2 has to be compiled first"),
                                               (["{p}", "--html", "{tmp}/no/x.html"], 6, "no/x.html")])
def test_refusals(pteron, sample, program, tmp_path, words, code, said):
    names = {"p": program, "m": sample / "mlp_float32" / "model.pt2", "o": tmp_path / "o.html", "tmp": tmp_path}
    done = pteron("inspect", *[w.format(**names) for w in words])
    assert done.returncode == code and said in done.stderr, done.stderr
    assert not (tmp_path / "o.html").exists()


@pytest.mark.skipif(BROWSER is None, reason="browser: no Chromium is installed")
def test_a_browser_draws_it(page, tmp_path):
    page("mlp_float32", "--backend", "portable")
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--virtual-time-budget=4000", "--dump-dom", f"file://{tmp_path / 'm.html'}#search=linear"],
                          capture_output=True, text=True, timeout=120)
    dom = done.stdout
    assert 'data-ready="yes"' in dom, done.stderr[-2000:]
    assert dom.count('class="node') == 7 + 2  # instructions, the input and the output
    assert len(re.findall(r'class="node[^"]*\bhit\b', dom)) >= 3 and len(re.findall(r'class="node[^"]*\bfar\b', dom)) >= 4
    assert "found; Enter shows the next" in dom and dom.count("<title>%") >= 6


def dump(path, word):
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--virtual-time-budget=4000", "--dump-dom", f"file://{path}{word}"],
                          capture_output=True, text=True, timeout=120)
    assert 'data-ready="yes"' in done.stdout, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="browser: no Chromium is installed")
def test_a_word_that_is_no_escape_is_searched_as_it_is(page, tmp_path):
    page("mlp_float32", "--backend", "portable")
    dom = dump(tmp_path / "m.html", "#search=%")
    assert len(re.findall(r'class="node[^"]*\bhit\b', dom)) == 9  # values are written %0, %1


@pytest.mark.skipif(BROWSER is None, reason="browser: no Chromium is installed")
def test_connections_over_several_rows_pass_beside_the_cards(pteron, tmp_path):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def forward(self, x):
            return x + torch.tanh(torch.cos(torch.exp(x)))
    torch.export.save(torch.export.export(Net(), (torch.rand(3),)), tmp_path / "net.pt2")
    assert pteron("compile", tmp_path / "net.pt2", "--backend", "portable", "-o", tmp_path / "m.pte").returncode == 0
    assert pteron("inspect", tmp_path / "m.pte", "--html", tmp_path / "m.html").returncode == 0
    dom = dump(tmp_path / "m.html", "")
    cards = [(float(x), float(y)) for x, y in re.findall(r'class="node[^"]*" transform="translate\(([-\d.]+) ([-\d.]+)\)"', dom)]
    skips = re.findall(r'class="edge skip" d="M([-\d.]+) ([-\d.]+) C([-\d.]+) [^"]*"', dom)
    assert len(cards) == 6 and len(skips) == 1, dom[-3000:]
    x, y, beside = map(float, skips[0])
    assert x == cards[0][0] + 190 and beside > max(cx for cx, _ in cards) + 190
