/* The report: draws what `focalcal.report.contents.Contents` holds, and computes the explorer's numbers.
   Text from the data reaches the page only as text nodes and attributes, never as markup. */
(() => {
"use strict";

// ---- the focal temperature family

/** The numbers in a base64 text of little-endian values. */
function decode(text, Type) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const size = Type.BYTES_PER_ELEMENT, view = new DataView(bytes.buffer);
  const read = { 1: "getUint8", 2: "getUint16", 4: "getFloat32" }[size];
  return Type.from({ length: bytes.length / size }, (_, i) => view[read](i * size, true));
}

/** The explorer's rows with room to work in: nothing is allocated while a slider moves. */
function readSample(explorer) {
  const numRows = explorer.num_rows;
  const weights = explorer.weights ? Float64Array.from(decode(explorer.weights, Float32Array)) : null;
  return {
    numRows,
    width: explorer.width,
    groups: explorer.groups,
    scores: decode(explorer.scores, Float32Array),
    label: decode(explorer.label, Uint16Array),
    correct: decode(explorer.correct, Uint8Array),
    tailScores: decode(explorer.tail_scores, Float32Array),
    tailCounts: decode(explorer.tail_counts, Uint16Array),
    weights,
    wholeWeights: !weights || weights.every((weight) => Number.isInteger(weight)),
    total: weights ? weights.reduce((sum, weight) => sum + weight, 0) : numRows,
    confidence: new Float64Array(numRows),
    nll: new Float64Array(numRows),
    odds: new Float64Array(explorer.width + explorer.groups),
    order: Uint32Array.from({ length: numRows }, (_, i) => i),
  };
}

/** log(sum of exp) of a row's classes but the first, where the sum itself is too small for a number. */
function logRestOfSureRow(sample, row, inverse) {
  const { width, groups, scores, tailScores, tailCounts } = sample;
  const terms = [];
  for (let j = 1; j < width; j++) terms.push(scores[row * width + j] * inverse);
  for (let g = 0; g < groups; g++) {
    const count = tailCounts[row * groups + g];
    if (count) terms.push(tailScores[row * groups + g] * inverse + Math.log(count));
  }
  const largest = Math.max(...terms);
  if (largest === -Infinity) return -Number.MAX_VALUE;
  return largest + Math.log(terms.reduce((sum, term) => sum + Math.exp(term - largest), 0));
}

/** log h(q) = log q - gamma log(1-q) - log(1 + gamma r), r = -q log q / (1-q), of a class that is not the first. */
function logH(logQ, q, gamma) {
  const r = q > 0 ? -q * logQ / (1 - q) : 0;
  return logQ - gamma * Math.log1p(-q) - Math.log1p(gamma * r);
}

/** Fills `confidence` and `nll` of every row at (gamma, T): p_j = h(q_j) / sum of h, q = softmax(z / T).

    The first class has score 0. All is relative to it: `rest` is (1-q)/q of the first class as a sum, so 1-q does not
    cancel, and `others` is the same after the map. */
function focalTemperature(sample, gamma, temperature) {
  const { numRows, width, groups, scores, label, tailScores, tailCounts, odds } = sample;
  const inverse = 1 / temperature;
  for (let row = 0; row < numRows; row++) {
    const start = row * width, tail = row * groups;
    let rest = 0;
    for (let j = 1; j < width; j++) rest += odds[j] = Math.exp(scores[start + j] * inverse);
    for (let g = 0; g < groups; g++) {
      const count = tailCounts[tail + g];
      if (count) rest += count * (odds[width + g] = Math.exp(tailScores[tail + g] * inverse));
    }
    const logTotal = Math.log1p(rest);
    const logRest = rest > 1e-290 ? Math.log(rest) : logRestOfSureRow(sample, row, inverse);
    const r = rest > 0 ? logTotal / rest : 1;
    const logFirst = gamma * (logTotal - logRest) - logTotal - Math.log1p(gamma * r);
    let others = 0, logLabel = logFirst;
    for (let j = 1; j < width; j++) {
      const value = logH(scores[start + j] * inverse - logTotal, odds[j] / (1 + rest), gamma);
      others += Math.exp(value - logFirst);
      if (j === label[row]) logLabel = value;
    }
    for (let g = 0; g < groups; g++) {
      const count = tailCounts[tail + g];
      if (!count) continue;
      const value = logH(tailScores[tail + g] * inverse - logTotal, odds[width + g] / (1 + rest), gamma);
      others += count * Math.exp(value - logFirst);
    }
    sample.confidence[row] = 1 / (1 + others);
    sample.nll[row] = logFirst - logLabel + Math.log1p(others);
  }
}

// ---- bins

/** A bin's means from the sums over its rows. */
function makeBin(lower, upper, mass, confidence, right) {
  return { lower, upper, mass, confidence: mass > 0 ? confidence / mass : 0, accuracy: mass > 0 ? right / mass : 0 };
}

/** A confidence this close to an edge lies on it, as in `report.sample`: logits are rounded, and 1/3 is an edge. */
const ON_EDGE = 1e-6;

/** Bins (i/M, (i+1)/M], the first one closed at 0. */
function equalWidthBins(sample, numBins) {
  const sums = Array.from({ length: numBins }, () => [0, 0, 0]);
  for (let row = 0; row < sample.numRows; row++) {
    const value = sample.confidence[row], weight = sample.weights ? sample.weights[row] : 1;
    const place = value * numBins, edge = Math.round(place);
    const bin = Math.max(0, Math.abs(place - edge) < ON_EDGE ? edge - 1 : Math.ceil(place) - 1);
    sums[bin][0] += weight;
    sums[bin][1] += weight * value;
    sums[bin][2] += weight * sample.correct[row];
  }
  return sums.map((sum, bin) => makeBin(bin / numBins, (bin + 1) / numBins, ...sum));
}

/** Bins of equal mass, cut at ceil(k W / M) rows, or at k W / M exactly where weights are not whole numbers.

    Rows of equal confidence share their correctness evenly, wherever a cut falls among them: as `core.ranking` does. */
function equalMassBins(sample, wanted) {
  const numBins = Math.min(wanted, sample.numRows);
  const groups = equalConfidences(sample);
  const bins = [];
  let at = 0, mass = 0, confidence = 0, right = 0; // sums over the groups before `at`
  let last = { mass: 0, confidence: 0, right: 0, edge: 0 };
  for (let k = 1; k <= numBins; k++) {
    const share = k * sample.total / numBins;
    const cut = sample.wholeWeights ? Math.ceil(share - 1e-9) : share;
    const slack = sample.wholeWeights ? 0 : 1e-12 * sample.total;
    while (at < groups.length - 1 && mass + groups[at].mass < cut - slack) {
      mass += groups[at].mass;
      confidence += groups[at].value * groups[at].mass;
      right += groups[at].right;
      at++;
    }
    const group = groups[at], inside = (cut - mass) / group.mass;
    const above = groups[Math.min(at + 1, groups.length - 1)].value;
    const here = {
      mass: cut,
      confidence: confidence + inside * group.value * group.mass,
      right: right + inside * group.right,
      edge: k === numBins ? 1 : inside < 1 - 1e-12 ? group.value : (group.value + above) / 2,
    };
    const inBin = ["mass", "confidence", "right"].map((name) => here[name] - last[name]);
    bins.push(makeBin(last.edge, here.edge, ...inBin));
    last = here;
  }
  return bins;
}

/** Groups of rows of equal confidence, in increasing order. */
function equalConfidences(sample) {
  const { confidence, order, correct, weights } = sample;
  order.sort((a, b) => confidence[a] - confidence[b]); // nearly sorted already while a slider moves
  const groups = [];
  let group = null;
  for (const row of order) {
    const weight = weights ? weights[row] : 1;
    if (weight === 0) continue;
    if (!group || confidence[row] !== group.value) groups.push(group = { value: confidence[row], mass: 0, right: 0 });
    group.mass += weight;
    group.right += weight * correct[row];
  }
  return groups;
}

/** The mean distance between confidence and accuracy. */
function calibrationError(bins) {
  const total = bins.reduce((sum, bin) => sum + bin.mass, 0);
  return bins.reduce((sum, bin) => sum + bin.mass * Math.abs(bin.confidence - bin.accuracy), 0) / total;
}

/** ECE, AdaECE and NLL of the sample at (gamma, T), and the bins they come from. */
function measure(sample, gamma, temperature, numBins) {
  focalTemperature(sample, gamma, temperature);
  const equalWidth = equalWidthBins(sample, numBins), equalMass = equalMassBins(sample, numBins);
  let nll = 0;
  for (let row = 0; row < sample.numRows; row++) nll += sample.nll[row] * (sample.weights ? sample.weights[row] : 1);
  return {
    ece: calibrationError(equalWidth),
    ada_ece: calibrationError(equalMass),
    nll: nll / sample.total,
    bins: { equal_width: equalWidth, equal_mass: equalMass },
  };
}

// ---- words and numbers

/** A way to write numbers, with a dash for those that are undefined. */
const writing = (write) => (given, ...how) => given === null || given === undefined ? "–" : write(given, ...how);
const percent = writing((given, digits = 1) => `${(100 * given).toFixed(digits)}\u00a0%`);
const points = writing((given) => {
  const size = Math.abs(100 * given).toFixed(1);
  return size === "0.0" ? size : `${given < 0 ? "−" : "+"}${size}`;
});
const decimal = writing((given, digits = 3) => given.toFixed(digits));
const whole = (given) => given.toLocaleString("en");
const rounded = (given) => String(Number(given.toPrecision(4)));
const shown = (given) => rounded(given).replace("-", "−");
const together = (text) => text.replace(/ = /g, "\u00a0=\u00a0").replace(/-(?=\d)/g, "−");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const SCHEMES = [["equal_width", "equal width"], ["equal_mass", "equal mass"]];
const CRITERIA = { nll: "NLL", ada_ece: "AdaECE", ece: "ECE" };
/** How to write a criterion where small differences matter. */
const precisely = (name) => name === "nll" ? (given) => decimal(given, 4) : (given) => percent(given, 2);

/** The measures of the table of key numbers, and those of them of which less is better. */
const KEY_MEASURES = ["accuracy", "mean_confidence", "gap", "ece", "ada_ece", "nll", "brier"];
const ERRORS = ["ece", "ada_ece", "nll", "brier"];
const headingOf = (contents, name) => capital(contents.measures[name].label) + (name === "gap" ? ", points" : "");
const writerOf = (contents, name) =>
  name === "gap" ? points : contents.measures[name].unit === "%" ? percent : decimal;

const value = (version, name) => version.numbers[name]?.value ?? null;

/** The item whose number is nearest to the wanted one. */
function nearest(items, wanted, numberOf) {
  const distance = (item) => Math.abs(numberOf(item) - wanted);
  return items.reduce((best, item) => distance(item) < distance(best) ? item : best);
}

/** The calibrated version with the smallest ECE; none without calibrators. */
function bestCalibrated(model) {
  const fitted = model.versions.slice(1).filter((version) => value(version, "ece") !== null);
  return fitted.reduce((best, version) => !best || value(version, "ece") < value(best, "ece") ? version : best, null);
}

/** The diagram of a scheme and a number of bins; the nearest number where there is no such one. */
function diagramOf(version, scheme, numBins) {
  const ofScheme = version.diagrams.filter((diagram) => diagram.scheme === scheme);
  return nearest(ofScheme, numBins, (diagram) => diagram.num_bins);
}

/** The bin nearest to a confidence among those that hold enough rows to be believed. */
function tellingBin(version, wanted) {
  const { count, confidence, accuracy } = diagramOf(version, "equal_width", 10);
  const rows = count.reduce((sum, each) => sum + each, 0);
  const enough = Math.min(Math.max(...count), Math.max(30, rows / 50));
  const believed = [...count.keys()].filter((bin) => count[bin] >= enough);
  const bin = nearest(believed, wanted, (each) => confidence[each]);
  return { confidence: confidence[bin], accuracy: accuracy[bin] };
}

// ---- elements

/** An element with attributes and children; `on...` attributes are listeners, strings become text. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, given] of Object.entries(attributes)) {
    if (given === null || given === undefined || given === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), given);
    else if (key === "style") Object.entries(given).forEach((setting) => node.style.setProperty(...setting));
    else node.setAttribute(key, given === true ? "" : given);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** A name from the data: kept apart from the direction of the text around it; the whole of it in the tooltip. */
function nameOf(text, className = "name") {
  if (!text.trim()) return el("span", { class: "soft" }, "(empty name)");
  return el("bdi", { class: className, title: text.length > 40 ? text : null }, text);
}

function bar(share) {
  const inside = el("span", { style: { width: `${100 * Math.min(1, Math.max(0, share))}%` } });
  return el("span", { class: "bar", "aria-hidden": "true" }, inside);
}

const note = (...children) => el("p", { class: "soft" }, children);
const head = (title, className = null) => el("th", { scope: "col", class: className }, title);

/** A table that scrolls sideways on its own where the screen is narrow. */
function table(label, heads, body) {
  return el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
}

const rowsOf = (rows) => el("tbody", {}, rows);

/** A choice among few values, as native radio buttons. */
function choices(name, title, options, chosen, onchange) {
  const labels = options.map(([key, label]) => el("label", {},
    el("input", { type: "radio", name, value: key, checked: key === chosen, onchange: () => onchange(key) }),
    typeof label === "string" ? el("span", {}, label) : label));
  return el("fieldset", { class: "control" }, el("legend", {}, title), el("div", { class: "choices" }, labels));
}

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), children);
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([term, content, wide]) =>
    el("div", { class: wide ? "wide" : null }, el("dt", {}, term), el("dd", {}, content))));
}

/** What the marks of a chart mean: the kind of mark, its colour, and words. */
function legend(...items) {
  return el("ul", { class: "legend" }, items.map(([key, colour, words]) => el("li", {},
    el("span", { class: `key ${key}`, style: colour ? { "--colour": colour } : {} }), el("span", {}, words))));
}

const DIAGONAL = ["dashed", null, "perfect calibration"];

// ---- charts

const charts = new Set();

/** A colour of the style sheet, as it is at the moment: light, dark, or on paper. */
function paint(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Plotly reads markup in text: names from the data are shown as they are, and short. */
function plotText(text) {
  const short = text.length > 32 ? `${text.slice(0, 31)}…` : text;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** A chart: `build` gives { traces, layout, alt } in the colours of the moment. Drawn once it is in the page. */
function chart(file, className, build) {
  const node = el("div", { class: `plot ${className}`, role: "img" });
  const config = {
    displaylogo: false, displayModeBar: "hover", modeBarButtons: [["toImage"]],
    toImageButtonOptions: { format: "png", filename: file, scale: 2 },
  };
  const made = {
    node,
    draw() {
      const { traces, layout, alt } = build();
      node.setAttribute("aria-label", alt);
      Plotly.react(node, traces, withTheme(layout, node), config);
    },
  };
  charts.add(made);
  return made;
}

function drawAll() {
  for (const each of charts) {
    if (each.node.isConnected) each.draw();
    else {
      Plotly.purge(each.node);
      charts.delete(each);
    }
  }
}

/** The layout in the colours of the moment and the size of its place: Plotly's own resizing is too late for paper. */
function withTheme(layout, node) {
  const paper = document.documentElement.hasAttribute("data-paper");
  const axis = {
    gridcolor: paint("--line"), linecolor: paint("--line"), zeroline: false, fixedrange: true,
    ticks: "", automargin: true,
  };
  const themed = Object.fromEntries(Object.entries(layout).map(([key, own]) =>
    [key, /^[xy]axis/.test(key) ? { ...axis, ...own } : own]));
  return {
    width: node.clientWidth, height: node.clientHeight, dragmode: false, showlegend: false, hovermode: "closest",
    margin: { l: 52, r: 22, t: 10, b: 46 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: paper ? 10 : 12, color: paint("--soft") },
    hoverlabel: { bgcolor: paint("--paper"), bordercolor: paint("--soft"), font: { color: paint("--ink") } },
    ...themed,
  };
}

const titled = (text, standoff) => ({ title: { text, standoff } });

/** Axes of a reliability diagram with the histogram of confidences under it. */
function diagramLayout(small) {
  const tips = small ? [] : [["too sure", 0.96, 0.06, "right"], ["not sure enough", 0.04, 0.95, "left"]];
  const shares = { tickformat: ".0%", dtick: small ? 0.5 : 0.25 };
  const across = small ? "confidence" : "confidence: what it says";
  const up = small ? "accuracy" : "accuracy: how often it is right";
  return {
    xaxis: { ...titled(across, 8), ...shares, range: [-0.01, 1.01], anchor: "y2" },
    yaxis: { ...titled(up, 6), ...shares, range: [-0.02, 1.02], domain: [0.25, 1] },
    yaxis2: { ...titled(small ? "" : "rows", 6), tickformat: ".0%", domain: [0, 0.18], rangemode: "tozero", nticks: 3 },
    bargap: 0,
    annotations: tips.map(([text, x, y, side]) =>
      ({ text, x, y, xanchor: side, showarrow: false, font: { size: 11, color: paint("--soft") } })),
  };
}

/** Columns of bins that hold rows. */
function columns(bins) {
  const held = bins.filter((bin) => bin.mass > 0);
  const column = (name) => held.map((bin) => bin[name]);
  return {
    lower: column("lower"), upper: column("upper"), count: column("mass"),
    confidence: column("confidence"), accuracy: column("accuracy"),
  };
}

/** Traces of a reliability diagram: band of chance, diagonal, accuracies with their intervals, histogram. */
function diagramTraces(diagram, histogram, colour) {
  const diagonal = { color: paint("--soft"), dash: "dash", width: 1.5 };
  const traces = [{ x: [0, 1], y: [0, 1], mode: "lines", line: diagonal, hoverinfo: "skip" }];
  if (diagram.chance_low) {
    traces.unshift({
      x: [...diagram.confidence, ...[...diagram.confidence].reverse()],
      y: [...diagram.chance_low, ...[...diagram.chance_high].reverse()],
      mode: "lines", fill: "toself", fillcolor: paint("--band"), line: { width: 0 }, hoverinfo: "skip",
    });
  }
  const most = Math.max(...diagram.count);
  const sizes = diagram.count.map((count) => 4 + 6 * Math.sqrt(count / most));
  const interval = diagram.low && {
    type: "data", symmetric: false, thickness: 1.2, width: 3, color: colour,
    array: diagram.high.map((high, i) => Math.max(0, high - diagram.accuracy[i])),
    arrayminus: diagram.low.map((low, i) => Math.max(0, diagram.accuracy[i] - low)),
  };
  traces.push({
    x: diagram.confidence, y: diagram.accuracy, mode: "lines+markers", error_y: interval || { visible: false },
    line: { color: `${colour}66`, width: 2 }, // pale: bins of few rows must not shout
    marker: { color: colour, opacity: 1, line: { width: 0 }, size: sizes },
    customdata: diagram.count.map((count) => whole(Math.round(count))),
    hovertemplate: "says %{x:.1%}<br>is right %{y:.1%}<br>%{customdata} rows<extra></extra>",
  });
  const rows = histogram.count.reduce((sum, count) => sum + count, 0);
  traces.push({
    type: "bar", yaxis: "y2",
    x: histogram.lower.map((lower, i) => (lower + histogram.upper[i]) / 2),
    width: histogram.lower.map((lower, i) => 0.94 * (histogram.upper[i] - lower)),
    y: histogram.count.map((count) => count / rows),
    marker: { color: colour, opacity: 0.55 }, hovertemplate: "%{y:.1%} of the rows<extra></extra>",
  });
  return traces;
}

/** What a reliability diagram shows, in a sentence. */
function diagramWords(name, diagram) {
  const fullest = diagram.count.indexOf(Math.max(...diagram.count));
  const confidence = diagram.confidence[fullest].toFixed(2), accuracy = diagram.accuracy[fullest].toFixed(2);
  return `Reliability diagram of ${name}: accuracy against confidence in ${diagram.count.length} bins; ` +
    `where most rows are, at confidence ${confidence}, accuracy is ${accuracy}.`;
}

function reliabilityChart(version, index, choice, className = "") {
  return chart("reliability", className, () => {
    const { scheme, numBins } = choice();
    const diagram = diagramOf(version, scheme, numBins);
    return {
      traces: diagramTraces(diagram, diagramOf(version, "equal_width", numBins), paint(`--version-${index % 6}`)),
      layout: diagramLayout(className === "tiny"),
      alt: diagramWords(version.name, diagram),
    };
  });
}

// ---- several models side by side

function sideBySide(contents) {
  const heads = [head("Model", "words"), head("Accuracy"), head("ECE"), head("NLL"),
    head("Best calibrator", "words"), head("ECE with it"), head("NLL with it")];
  const usual = () => ({ scheme: "equal_width", numBins: contents.num_bins });
  const figures = contents.models.map((model) => el("figure", {},
    el("figcaption", {}, el("h3", {}, nameOf(model.name)),
      el("div", { class: "soft small" }, `ECE ${percent(value(model.versions[0], "ece"))} as it is`)),
    reliabilityChart(model.versions[0], 0, usual, "tiny").node));
  return section("models", `${contents.models.length} models side by side`,
    table("Models side by side", heads, rowsOf(contents.models.map(modelRow))),
    el("div", { class: "multiples" }, figures));
}

function modelRow(model) {
  const best = bestCalibrated(model), raw = model.versions[0];
  const headline = el("span", { class: "setting" }, capital(model.verdict.split(":")[0]));
  const after = best
    ? [el("td", { class: "words" }, nameOf(best.name), el("span", { class: "soft small" }, together(best.settings))),
      numberCell(best, "ece", percent), numberCell(best, "nll", decimal)]
    : [el("td", { class: "words" }, "–"), el("td", {}, "–"), el("td", {}, "–")];
  return el("tr", {}, el("th", { scope: "row" }, nameOf(model.name), headline),
    numberCell(raw, "accuracy", percent), numberCell(raw, "ece", percent), numberCell(raw, "nll", decimal), after);
}

function modelSwitch(contents, onchange) {
  const options = contents.models.map((model, index) => [String(index), nameOf(model.name)]);
  return el("div", { class: "controls control models" },
    choices("model", "Show the model", options, "0", (key) => onchange(Number(key))));
}

// ---- the verdict

function verdictSection(model) {
  const raw = model.versions[0], [headline, ...detail] = model.verdict.split(":");
  const said = tellingBin(raw, 0.9), best = bestCalibrated(model);
  const parts = [
    el("div", { class: `verdict ${raw.direction}` },
      el("div", { class: "soft" }, nameOf(model.name)),
      el("h2", { id: "verdict-title" }, capital(headline)),
      el("p", { class: "detail" }, detail.join(":").trim())),
    el("p", { class: "plain" }, `When this model ${saysAndIs(said)}.`, best ? afterWords(best, said.confidence) : null),
    meters(raw),
  ];
  if (model.same_data) {
    parts.unshift(el("p", { class: "banner", role: "note" }, el("strong", {}, "Fitted and measured on the same rows. "),
      "What is shown after calibration is therefore better than what new data will show."));
  }
  return el("section", { id: "verdict", class: "lead", "aria-labelledby": "verdict-title" }, parts);
}

const saysAndIs = ({ confidence, accuracy }) =>
  `says ${percent(confidence, 0)}, it is right ${percent(accuracy, 0)} of the time`;

function afterWords(best, confidence) {
  return [" After ", nameOf(best.name, "inline-name"), best.settings ? ` (${together(best.settings)})` : "",
    `: when it ${saysAndIs(tellingBin(best, confidence))}.`];
}

/** What the model says and what is true, on average, as two bars. */
function meters(version) {
  const pairs = [["It says, on average", "mean_confidence", null], ["It is right", "accuracy", "truth"]];
  return el("dl", { class: "meters" }, pairs.map(([term, name, className]) => [
    el("dt", {}, term),
    el("dd", { class: "meter", "aria-hidden": "true" },
      el("span", { class: className, style: { width: `${100 * value(version, name)}%` } })),
    el("dd", {}, percent(value(version, name))),
  ]));
}

// ---- key numbers

function numberCell(version, name, write, best = false) {
  const number = version.numbers[name];
  if (!number || number.value === null) return el("td", {}, "–");
  const end = (given) => write(given).replace("\u00a0%", "");
  const known = number.low !== null && number.high !== null;
  return el("td", { class: best ? "best" : null }, write(number.value),
    known ? el("span", { class: "interval" }, `[${end(number.low)}, ${end(number.high)}]`) : null);
}

function numbersSection(model, contents) {
  const least = Object.fromEntries(ERRORS.map((name) =>
    [name, Math.min(...model.versions.map((version) => value(version, name) ?? Infinity))]));
  const isBest = (version, name) => model.versions.length > 1 && value(version, name) === least[name];
  const rows = model.versions.map((version) => el("tr", {}, versionHead(version), KEY_MEASURES.map(
    (name) => numberCell(version, name, writerOf(contents, name), isBest(version, name)))));
  const heads = [head("Version", "words"), ...KEY_MEASURES.map((name) => head(headingOf(contents, name)))];
  const notes = model.versions.flatMap((version) => version.warnings.map((warning) =>
    el("li", {}, nameOf(version.name, "inline-name"), `: ${warning}`)));
  return section("numbers", "Key numbers",
    note(`Before and after each calibrator, with ${percent(contents.level, 0)} intervals. `,
      "The smallest error of a column is bold."),
    table("Key numbers", heads, rowsOf(rows)),
    notes.length ? el("ul", { class: "notes" }, notes) : null, otherNumbers(model, contents), dataFacts(model));
}

function versionHead(version) {
  const setting = version.settings ? el("span", { class: "setting" }, together(version.settings)) : null;
  return el("th", { scope: "row" }, nameOf(version.name), setting);
}

/** Measures beyond the key ones, for those who ask. */
function otherNumbers(model, contents) {
  const names = new Set(model.versions.flatMap((version) => Object.keys(version.numbers)));
  KEY_MEASURES.forEach((name) => names.delete(name));
  if (!names.size) return null;
  const heads = [head("Measure", "words"), ...model.versions.map((version) => head(nameOf(version.name)))];
  const rows = [...names].map((name) => el("tr", {}, el("th", { scope: "row" }, capital(contents.measures[name].label)),
    model.versions.map((version) => numberCell(version, name, writerOf(contents, name)))));
  return el("details", { class: "control" }, el("summary", {}, "More measures"),
    table("More measures", heads, rowsOf(rows)));
}

function dataFacts(model) {
  const names = model.missing_classes.flatMap((name, i) => [i ? ", " : "", nameOf(name, "inline-name")]);
  const unnamed = model.num_missing - model.missing_classes.length;
  const more = unnamed > 0 ? ` and ${whole(unnamed)} more` : "";
  const pairs = [
    ["Rows measured", whole(model.num_rows)],
    ["Rows fitted to", model.num_fit_rows ? whole(model.num_fit_rows) : "none"],
    ["Classes", whole(model.num_classes)],
    ["Scores", model.kind.replace("_", "-") + (model.weighted ? ", weighted rows" : "")],
    ["Repeated rows", model.num_duplicates ? whole(model.num_duplicates) : "none"],
    ["Classes without rows", model.num_missing ? whole(model.num_missing) : "none"],
  ];
  if (model.num_missing) pairs.push(["Which are", [...names, more], true]);
  pairs.push(["Split", model.split, true]);
  return facts(pairs);
}

// ---- reliability diagrams

function reliabilitySection(model, contents, state) {
  const figures = model.versions.map((version, index) =>
    ({ version, error: el("span", { class: "shown-error" }), drawn: reliabilityChart(version, index, () => state) }));
  const update = () => {
    for (const { version, error, drawn } of figures) {
      const diagram = diagramOf(version, state.scheme, state.numBins);
      error.textContent = `ECE ${percent(diagram.error, 2)}`;
      error.title = `A perfectly calibrated model would show up to ${percent(diagram.chance_error, 2)} by chance.`;
      if (drawn.node.isConnected) drawn.draw();
    }
  };
  const choose = (change) => {
    Object.assign(state, change);
    update();
  };
  update();
  const options = contents.bin_counts.map((count) =>
    el("option", { value: count, selected: count === state.numBins }, String(count)));
  const bins = el("select", { id: "num-bins", onchange: () => choose({ numBins: Number(bins.value) }) }, options);
  return section("reliability", "Reliability diagrams",
    note("Points on the dashed line are honest: of the rows that get 80 %, 80 % are right. ",
      "Points below it are too sure."),
    el("div", { class: "controls control" },
      choices("scheme", "Bins of", SCHEMES, state.scheme, (scheme) => choose({ scheme })),
      el("label", { class: "field" }, "Number of bins", bins)),
    el("div", { class: `multiples${figures.length === 1 ? " alone" : ""}` }, figures.map(versionFigure)),
    legend(
      ["dot", "var(--soft)", `accuracy of a bin and its ${percent(contents.level, 0)} interval, larger with more rows`],
      ["area", null, "where a perfectly calibrated model would lie, by chance"], DIAGONAL));
}

function versionFigure({ version, error, drawn }) {
  return el("figure", {},
    el("figcaption", {}, el("h3", {}, nameOf(version.name, "inline-name"), " · ", error),
      el("div", { class: "soft small" }, together(version.settings) || "no calibrator")),
    drawn.node);
}

// ---- the explorer

/** A slider with a number box beside it. The slider works on `scale`, the box on the value itself. */
function sliderWithBox(id, label, ends, limits, scale, set) {
  const slider = el("input", {
    type: "range", id, min: scale.to(ends[0]), max: scale.to(ends[1]), step: scale.step,
    oninput: () => set(scale.from(Number(slider.value))),
  });
  const box = el("input", {
    type: "number", id: `${id}-box`, "aria-label": `${label}, as a number`, min: limits[0], max: limits[1], step: "any",
    oninput: () => {
      const given = box.valueAsNumber, fits = given >= limits[0] && given <= limits[1];
      box.setAttribute("aria-invalid", String(!fits));
      if (fits) set(given);
    },
  });
  const show = (current) => {
    slider.value = scale.to(current);
    slider.setAttribute("aria-valuetext", rounded(current));
    if (document.activeElement !== box || box.valueAsNumber !== current) box.value = rounded(current);
    box.setAttribute("aria-invalid", "false");
  };
  const scaleEnds = el("div", { class: "ends", "aria-hidden": "true" }, ends.map((end) => el("span", {}, shown(end))));
  const node = el("div", { class: "slider control" },
    el("label", { for: id }, label), el("div", {}, slider, scaleEnds), box);
  return { node, show };
}

/** The explorer: where it stands, its controls, and its numbers. `moved` hears of every new place. */
function makeExplorer(model, sample, numBins, state) {
  const { explorer } = model;
  const at = { gamma: explorer.focal_gamma, temperature: explorer.focal_temperature };
  const identity = measure(sample, 0, 1, numBins);
  const before = columns(identity.bins.equal_width), beforeOfMass = columns(identity.bins.equal_mass);
  const listeners = [];
  let now = identity, waiting = false, announcing = 0;

  const temperature = sliderWithBox("temperature", "Temperature T", [0.1, 10], [0.01, 100],
    { to: Math.log10, from: (power) => 10 ** power, step: 0.005 }, (given) => move({ temperature: given }));
  const gamma = sliderWithBox("gamma", "Focal γ of the map", [-0.9, 5], [-0.95, 20],
    { to: (same) => same, from: (same) => same, step: 0.01 }, (given) => move({ gamma: given }));
  const places = [
    ["identity", "Identity", 0, 1],
    ["best-temperature", "Best T", 0, explorer.temperature],
    ["best-focal", "Best focal temperature", explorer.focal_gamma, explorer.focal_temperature],
  ];
  const buttons = places.map(([id, text, g, t]) =>
    el("button", { type: "button", id, onclick: () => move({ gamma: g, temperature: t }) }, text));
  const outputs = ["ece", "ada_ece", "nll"].map((name) => ({
    name, title: CRITERIA[name], write: precisely(name),
    output: el("dd", { id: `explorer-${name}` }), change: el("dd", { class: "change" }),
  }));
  const spoken = el("div", { class: "unseen", "aria-live": "polite", id: "explorer-spoken" });
  const place = el("div", { class: "soft small" });
  const drawn = chart("explorer", "tall", explorerChart);

  function explorerChart() {
    const diagram = columns(now.bins[state.explorerScheme]);
    const old = state.explorerScheme === "equal_width" ? before : beforeOfMass;
    const traces = diagramTraces(diagram, columns(now.bins.equal_width), paint("--accent"));
    const faint = { mode: "lines", line: { color: paint("--soft"), width: 1.5 }, opacity: 0.7, hoverinfo: "skip" };
    traces.splice(1, 0, { x: old.confidence, y: old.accuracy, ...faint });
    const here = `ECE is ${percent(now.ece, 2)} at gamma ${shown(at.gamma)} and temperature ${shown(at.temperature)}.`;
    return { traces, layout: diagramLayout(false), alt: `${diagramWords("the explored model", diagram)} ${here}` };
  }

  function move(to) {
    Object.assign(at, to);
    temperature.show(at.temperature);
    gamma.show(at.gamma);
    places.forEach(([, , g, t], i) =>
      buttons[i].setAttribute("aria-pressed", String(at.gamma === g && at.temperature === t)));
    if (waiting) return;
    waiting = true; // one computation a frame, however many events come
    requestAnimationFrame(() => { waiting = false; update(); });
  }

  function update() {
    now = measure(sample, at.gamma, at.temperature, numBins);
    for (const { name, write, output, change } of outputs) {
      output.textContent = write(now[name]);
      output.dataset.value = now[name];
      change.textContent = `was ${write(identity[name])}`;
    }
    place.textContent = `γ = ${shown(at.gamma)}, T = ${shown(at.temperature)}`;
    clearTimeout(announcing); // speak when the slider rests
    announcing = setTimeout(announce, 500);
    if (drawn.node.isConnected) drawn.draw();
    listeners.forEach((listener) => listener());
  }

  function announce() {
    spoken.textContent = outputs.map(({ title, name, write }) => `${title} ${write(now[name])}`).join(", ");
  }

  move({});
  update();
  const moved = (listener) => listeners.push(listener);
  return { at, move, moved, update, sliders: [temperature.node, gamma.node], buttons, outputs, spoken, place, drawn };
}

function explorerSection({ explorer }, made, state) {
  const { num_rows: rows, out_of: all, seed, width, groups } = explorer;
  const reduced = groups ? ` Of each row the ${width} largest scores are kept and the rest in ${groups} groups.` : "";
  const choose = (key) => {
    state.explorerScheme = key;
    made.update();
  };
  const controls = el("div", {}, made.sliders, el("div", { class: "buttons control" }, made.buttons),
    choices("explorer-scheme", "Bins of", SCHEMES, state.explorerScheme, choose),
    el("dl", { class: "readout" }, made.outputs.map(({ title, output, change }) =>
      el("div", {}, el("dt", {}, title), output, change))),
    made.spoken,
    el("p", { class: "soft small" },
      `Computed here from ${rows < all
        ? `${whole(rows)} of ${whole(all)} measured rows, drawn with seed ${seed}`
        : `all ${whole(all)} measured rows`}.${reduced}`));
  const figure = el("figure", {},
    el("figcaption", {}, el("h3", {}, "What the sample shows"), made.place), made.drawn.node,
    legend(["dot", "var(--accent)", "accuracy at these settings, larger with more rows"],
      ["", "var(--soft)", "the model as it is"], DIAGONAL));
  return section("explorer", "Explorer",
    note("Move the sliders: T divides the logits (more is less sure), γ bends the result by the focal calibration ",
      "map. It starts at the fitted optimum."),
    el("div", { class: "split" }, controls, figure));
}

// ---- the criterion landscape

function landscapeSection(model, explorer, state) {
  const names = model.landscapes.map((landscape) => landscape.criterion);
  if (!names.includes(state.criterion)) state.criterion = names[0];
  const current = () => model.landscapes.find((landscape) => landscape.criterion === state.criterion);
  const words = el("p", { class: "soft small", id: "landscape-words" });
  const drawn = chart("landscape", "tall", () => landscapeChart(current(), explorer));
  const redraw = () => drawn.node.isConnected && drawn.draw();
  const choose = (key) => {
    state.criterion = key;
    words.textContent = landscapeWords(current());
    redraw();
  };
  choose(state.criterion);
  const goThere = ({ points: [point] }) => {
    explorer.move({ gamma: point.x, temperature: point.y });
    document.getElementById("explorer").scrollIntoView();
    document.getElementById("temperature").focus({ preventScroll: true });
  };
  if (explorer) {
    let resting = 0; // the map is redrawn when the slider rests: it is slower than the explorer's own chart
    explorer.moved(() => {
      clearTimeout(resting);
      resting = setTimeout(redraw, 120);
    });
  }
  const marks = [["dot", "var(--version-1)", "best T (γ = 0)"],
    ["diamond", "var(--version-3)", "best focal temperature"],
    ["dashed", null, "the line that komisarenko2024 searches"]];
  if (explorer) marks.push(["ring", null, "where the explorer is"]);
  return {
    listen: () => explorer && drawn.node.on("plotly_click", goThere),
    node: section("landscape", "Criterion landscape",
      note("How good each pair of γ and T is on the rows of the fit; dark is better.",
        explorer ? el("span", { class: "control" }, " Click a point to send the explorer there.") : null),
      el("div", { class: "controls control" },
        choices("criterion", "Criterion", names.map((name) => [name, CRITERIA[name]]), state.criterion, choose)),
      el("figure", {}, drawn.node, el("figcaption", {}, words, legend(...marks)))),
  };
}

function landscapeWords({ criterion, best_temperature: best, best_focal: focal }) {
  const write = precisely(criterion);
  return `${CRITERIA[criterion]}: ${write(best.value)} at best with T = ${shown(best.temperature)} alone, ` +
    `${write(focal.value)} with γ = ${shown(focal.gamma)} and T = ${shown(focal.temperature)}.`;
}

function landscapeChart(landscape, explorer) {
  const { criterion, gammas, temperatures, values, best_temperature: best, best_focal: focal, line } = landscape;
  const sorted = values.flat().filter(Number.isFinite).sort((a, b) => a - b);
  const [format, ticks] = criterion === "nll" ? [".4f", ".2f"] : [".2%", ".1%"];
  const mark = ({ gamma, temperature }, name, symbol, color, size) => ({
    x: [gamma], y: [temperature], mode: "markers",
    marker: { symbol, size, color, line: { color: "#ffffff", width: 2 } },
    hovertemplate: `${name}<br>γ %{x:.2f}, T %{y:.3f}<extra></extra>`,
  });
  const traces = [
    {
      type: "heatmap", x: gammas, y: temperatures, z: temperatures.map((_, j) => gammas.map((_, i) => values[i][j])),
      // The bottom of the valley is what matters: the colours end at three quarters of the map.
      zmin: sorted[0], zmax: sorted[Math.floor(0.75 * (sorted.length - 1))], colorscale: "Cividis",
      colorbar: { thickness: 10, outlinewidth: 0, tickformat: ticks, title: { text: CRITERIA[criterion] } },
      hovertemplate: `γ %{x:.2f}, T %{y:.3f}<br>${CRITERIA[criterion]} %{z:${format}}<extra></extra>`,
    },
    {
      x: line.map(([gamma]) => gamma), y: line.map(([, temperature]) => temperature), mode: "lines",
      line: { color: "#ffffff", dash: "dash", width: 2 }, hoverinfo: "skip",
    },
    mark(best, "best T", "circle", paint("--version-1"), 13),
    mark(focal, "best focal temperature", "diamond", paint("--version-3"), 14),
  ];
  if (explorer) traces.push(mark(explorer.at, "the explorer", "circle-open", "#ffffff", 22));
  const ends = (list) => [Math.min(...list), Math.max(...list)];
  const labels = TEMPERATURE_LABELS.filter((t) => t >= Math.min(...temperatures) && t <= Math.max(...temperatures));
  return {
    traces,
    layout: {
      xaxis: { ...titled("γ", 8), range: ends(gammas), showgrid: false },
      yaxis: {
        ...titled("T (log scale)", 6), type: "log", range: ends(temperatures).map(Math.log10), showgrid: false,
        tickvals: labels, ticktext: labels.map(String),
      },
    },
    alt: `Heat map over gamma and temperature. ${landscapeWords(landscape)}`,
  };
}

const TEMPERATURE_LABELS = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50];

// ---- classes

const CLASS_COLUMNS = [
  ["name", "Class", null],
  ["count", "Rows", whole],
  ["frequency", "Frequency", (given) => percent(given, 2)],
  ["mean_probability", "Mean probability", (given) => percent(given, 2)],
  ["gap", "Gap, points", points],
  ["ece", "ECE", (given) => percent(given, 2)],
  ["recall", "Recall", percent],
];
const FIRST_ROWS = 20;

function classesSection(model) {
  const { classes } = model, total = classes.name.length;
  const view = { by: "ece", falling: true, filter: "", all: false };
  const largest = Math.max(...classes.ece, 1e-12);
  const body = el("tbody"), said = el("p", { class: "soft small", "aria-live": "polite", id: "classes-shown" });
  const heads = CLASS_COLUMNS.map(([key, title]) => {
    const arrow = el("span", { "aria-hidden": "true" });
    const button = el("button", { type: "button", onclick: () => sortBy(key) }, title, arrow);
    const node = head(button, key === "name" ? "words" : null);
    node.dataset.column = key;
    return { key, arrow, node };
  });
  const look = (change) => {
    Object.assign(view, change);
    update();
  };
  const more = el("button",
    { type: "button", class: "control", id: "all-classes", onclick: () => look({ all: !view.all }) });

  function sortBy(key) {
    look({ falling: view.by === key ? !view.falling : key !== "name", by: key });
  }

  function update() {
    const wanted = view.filter.toLowerCase();
    const found = classOrder(classes, view).filter((i) => classes.name[i].toLowerCase().includes(wanted));
    const rows = view.all ? found : found.slice(0, FIRST_ROWS);
    body.replaceChildren(...rows.map((i) => classRow(classes, i, largest)));
    for (const { key, arrow, node } of heads) {
      arrow.textContent = key === view.by ? (view.falling ? " ▾" : " ▴") : "";
      if (key === view.by) node.setAttribute("aria-sort", view.falling ? "descending" : "ascending");
      else node.removeAttribute("aria-sort");
    }
    const all = whole(classes.num_classes);
    const left = total < classes.num_classes ? `; the file lists the worst ${whole(total)} of ${all}` : "";
    said.textContent = `${whole(rows.length)} of ${whole(total)} classes shown${left}.`;
    more.hidden = found.length <= FIRST_ROWS;
    more.textContent = view.all ? `Show the first ${FIRST_ROWS}` : `Show all ${whole(found.length)}`;
  }

  update();
  const search = el("input", { type: "search", id: "class-filter", oninput: () => look({ filter: search.value }) });
  return section("classes", "Classes",
    note("Is the probability given to each class as large as the class is frequent? ",
      "Of the model as it is, worst first.", el("span", { class: "control" }, " Press a heading to sort.")),
    total > FIRST_ROWS
      ? el("div", { class: "controls control" }, el("label", { class: "field" }, "Find a class", search)) : null,
    table("Classes", heads.map(({ node }) => node), body), said, more);
}

/** Class numbers in the order of a column; undefined values come last either way. */
function classOrder(classes, { by, falling }) {
  const column = classes[by], sign = falling ? -1 : 1;
  return [...column.keys()].sort((a, b) => {
    if (column[a] === null || column[b] === null) return (column[a] === null) - (column[b] === null);
    return sign * (by === "name" ? column[a].localeCompare(column[b], "en", { numeric: true }) : column[a] - column[b]);
  });
}

function classRow(classes, i, largest) {
  return el("tr", {}, CLASS_COLUMNS.map(([key, , write]) => {
    if (key === "name") return el("th", { scope: "row" }, nameOf(classes.name[i]));
    return el("td", {}, write(classes[key][i]), key === "ece" ? bar(classes.ece[i] / largest) : null);
  }));
}

// ---- errors: risk and coverage, confusions

function riskSection(model) {
  const words = riskWords(model.versions[0]);
  const drawn = chart("risk-coverage", "", () => ({
    traces: model.versions.map((version, index) => ({
      x: version.risk_coverage.coverage, y: version.risk_coverage.risk, mode: "lines",
      line: { color: paint(`--version-${index % 6}`), width: 2, dash: ["solid", "dash", "dot", "dashdot"][index % 4] },
      hovertemplate: `${plotText(version.name)}<br>keeping %{x:.0%}: %{y:.2%} wrong<extra></extra>`,
    })),
    layout: {
      xaxis: { ...titled("coverage: share of rows kept, surest first", 8), tickformat: ".0%", range: [0, 1.01] },
      yaxis: { ...titled("risk: share of them wrong", 6), tickformat: ".0%", rangemode: "tozero" },
    },
    alt: `Risk against coverage. ${words}`,
  }));
  const names = model.versions.map((version, index) =>
    ["", `var(--version-${index % 6})`, nameOf(version.name, "inline-name")]);
  return section("risk", "Risk and coverage", note(words), el("figure", {}, drawn.node, legend(...names)));
}

function riskWords({ risk_coverage: { coverage, risk } }) {
  const half = nearest([...coverage.keys()], 0.5, (i) => coverage[i]);
  return `If only the surest ${percent(coverage[half], 0)} of the rows are kept, ` +
    `${percent(risk[half])} of them are wrong, instead of ${percent(risk[risk.length - 1])} of all.`;
}

function confusionsSection(model) {
  const { threshold, total, true: truth, predicted, count, mean_confidence: confidence } = model.confusions;
  const rows = truth.map((name, i) => el("tr", {},
    el("th", { scope: "row" }, nameOf(name)), el("td", { class: "words" }, nameOf(predicted[i])),
    el("td", {}, whole(count[i]), bar(count[i] / count[0])), el("td", {}, percent(confidence[i]))));
  const heads = [head("True class", "words"), head("Predicted", "words"), head("Rows"), head("Mean confidence")];
  return section("confusions", "Confident errors",
    note(`Errors at a confidence of ${percent(threshold)} or more: ${whole(total)} of ${whole(model.num_rows)} rows.`),
    rows.length ? table("Confident errors", heads, rowsOf(rows)) : null);
}

// ---- AdaFocal's gammas

/** A colour between the ends of the ramp. */
function rampColour(share) {
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const low = parts(paint("--ramp-low")), high = parts(paint("--ramp-high"));
  return `rgb(${low.map((part, i) => Math.round(part + share * (high[i] - part))).join(",")})`;
}

function dynamicsSection({ dynamics }) {
  const { gamma, lower, upper } = dynamics, last = gamma[gamma.length - 1];
  const range = (bin) => `${percent(lower[bin], 0)} to ${percent(upper[bin], 0)}`;
  const drawn = chart("adafocal", "", () => ({
    traces: lower.map((_, bin) => ({
      x: gamma.map((_, update) => update + 1), y: gamma.map((row) => row[bin]), mode: "lines",
      line: { color: rampColour(bin / Math.max(1, lower.length - 1)), width: 2 },
      hovertemplate: `confidence ${range(bin)}<br>update %{x}: γ = %{y:.2f}<extra></extra>`,
    })),
    layout: {
      xaxis: titled("update", 8),
      yaxis: { ...titled("γ", 6), zeroline: true, zerolinecolor: paint("--soft") },
    },
    alt: `AdaFocal's gamma in ${lower.length} bins over ${gamma.length} updates; ` +
      `at the end between ${shown(Math.min(...last))} and ${shown(Math.max(...last))}.`,
  }));
  return section("dynamics", "How AdaFocal's γ went",
    note("One line a bin of confidence. A positive γ holds the model back there, a negative one makes it surer."),
    el("figure", {}, drawn.node, legend(["ramp", null, "least to most confident bin"])));
}

// ---- how to read this

const TERMS = [
  ["Confidence", "The largest probability that the model gives: how sure it says it is."],
  ["Accuracy", "The share of rows whose most probable class is the true one."],
  ["Gap", "Mean confidence minus accuracy. Above 0 the model is too sure, below 0 not sure enough."],
  ["ECE", "Rows are sorted into bins of equal width by confidence; ECE is the mean distance between confidence and " +
    "accuracy of a bin. Small is good; a little is chance."],
  ["AdaECE", "The same with bins that hold equally many rows."],
  ["NLL", "The mean of −log of the probability of the true class, which is the cross-entropy. " +
    "It punishes confident errors most."],
  ["Brier", "The mean squared distance between probabilities and truth."],
  ["Intervals", "Of accuracies in the diagrams by Clopper and Pearson; of other numbers by resampling rows."],
  ["Temperature T", "Divides the logits. Above 1 it makes a model less sure."],
  ["Focal temperature", "Temperature, then the focal calibration map with γ. With γ = 0 it is temperature alone."],
];

function footer({ version, num_bins: numBins, level, seed }) {
  const terms = TERMS.map(([term, meaning]) => el("div", {}, el("dt", {}, term), el("dd", {}, meaning)));
  return el("div", { class: "inside" }, el("h2", {}, "How to read this"), el("dl", { class: "terms" }, terms),
    el("p", { class: "soft small" },
      `Made by focalcal ${version}: ${numBins} bins, ${percent(level, 0)} intervals, seed ${seed}. `,
      "The explorer's rows are a random sample of the measured ones, drawn with the seed that it names. ",
      "This file needs no network and sends nothing."));
}

// ---- the page

const TITLES = {
  models: "Side by side", verdict: "Verdict", numbers: "Key numbers", reliability: "Reliability", explorer: "Explorer",
  landscape: "Landscape", classes: "Classes", risk: "Risk and coverage", confusions: "Confident errors",
  dynamics: "AdaFocal",
};

function listSections() {
  const nav = document.getElementById("sections");
  const there = Object.entries(TITLES).filter(([id]) => document.getElementById(id));
  nav.replaceChildren(el("ul", {}, there.map(([id, title]) => el("li", {}, el("a", { href: `#${id}` }, title)))));
  nav.hidden = false;
}

function modelSections(contents, index, sampleOf, state) {
  const model = contents.models[index];
  const explorer = model.explorer && makeExplorer(model, sampleOf(index), contents.num_bins, state);
  const landscape = model.landscapes.length ? landscapeSection(model, explorer, state) : null;
  return {
    nodes: [
      verdictSection(model), numbersSection(model, contents), reliabilitySection(model, contents, state),
      explorer && explorerSection(model, explorer, state), landscape && landscape.node, classesSection(model),
      riskSection(model), confusionsSection(model), model.dynamics && dynamicsSection(model),
    ].filter(Boolean),
    listen: () => landscape && landscape.listen(),
  };
}

/** The button that changes between light and dark; until it is pressed the page follows the system. */
function followTheme() {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = (theme) => {
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    drawAll();
  };
  let chosen = false;
  button.hidden = false;
  button.setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
  button.addEventListener("click", () => { chosen = true; show(root.dataset.theme === "dark" ? "light" : "dark"); });
  system.addEventListener("change", () => chosen || show(system.matches ? "dark" : "light"));
}

/** Charts are drawn again for paper before the page is laid out on it, and whenever their place changes its width. */
function followSize() {
  const root = document.documentElement, main = document.getElementById("main");
  const onPaper = (paper) => {
    root.toggleAttribute("data-paper", paper);
    drawAll();
  };
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  matchMedia("print").addEventListener("change", (event) => onPaper(event.matches));
  let drawn = main.clientWidth;
  new ResizeObserver(() => {
    if (main.clientWidth === drawn) return;
    drawn = main.clientWidth;
    drawAll();
  }).observe(main);
}

function start() {
  const contents = JSON.parse(document.getElementById("contents").textContent);
  const main = document.getElementById("main");
  const samples = new Map();
  const sampleOf = (index) => {
    if (!samples.has(index)) samples.set(index, readSample(contents.models[index].explorer));
    return samples.get(index);
  };
  const numBins = nearest(contents.bin_counts, contents.num_bins, (count) => count);
  const state = { scheme: "equal_width", numBins, explorerScheme: "equal_width", criterion: "ada_ece" };
  const several = contents.models.length > 1, holder = el("div", { id: "model" });
  const show = (index) => {
    const made = modelSections(contents, index, sampleOf, state);
    holder.replaceChildren(...made.nodes);
    listSections();
    drawAll();
    made.listen();
  };
  main.replaceChildren(...(several ? [sideBySide(contents), modelSwitch(contents, show)] : []), holder);
  document.getElementById("footer").replaceChildren(footer(contents));
  show(0);
  followTheme();
  followSize();
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  window.focalcalReport = {
    measures(index, gamma, temperature) {
      const { ece, ada_ece, nll } = measure(sampleOf(index), gamma, temperature, contents.num_bins);
      return { ece, ada_ece, nll };
    },
  };
}

start();
})();
