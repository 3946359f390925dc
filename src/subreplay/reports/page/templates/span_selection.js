(function () {
  "use strict";
  // Selects a span of time: charts cover the rest, incidents outside fade, and the findings hear of it (event "span").
  var form = document.getElementById("span");
  if (!form) { return; }
  var STEPS = 240, DAY = 864e8, SECOND = 1e6;  // times are in µs
  var frame = form.dataset.frame.split(" ").map(Number), length = frame[1] - frame[0];
  var note = document.getElementById("span-note"), from = form.elements.start, to = form.elements.end, span = null;
  var each = function (query, act) { Array.prototype.forEach.call(document.querySelectorAll(query), act); };
  var clock = function (at) {
    var text = new Date(at / 1000).toISOString();
    return (length > DAY ? text.slice(0, 10) + " " : "") + text.slice(11, length < 3 * SECOND ? 23 : 19);
  };
  var step = function (at) { return Math.round((at - frame[0]) / length * STEPS); };
  var instant = function (steps) { return frame[0] + steps / STEPS * length; };

  // An incident with a little time around it
  function spanOf(button) {
    var own = button.dataset.span.split(" ").map(Number), side = Math.max(own[1] - own[0], length / STEPS) * 0.05;
    return [own[0] - side, own[1] + side];
  }

  function coverTheRest(group) {
    var of = group.dataset.frame.split(" ").map(Number), rects = group.children;
    var pixel = function (at) { return Math.min(Math.max((at - of[0]) / (of[1] - of[0]), 0), 1) * of[2]; };
    rects[0].setAttribute("width", span ? pixel(span[0]) : 0);
    rects[1].setAttribute("x", span ? pixel(span[1]) : of[2]);
    rects[1].setAttribute("width", span ? of[2] - pixel(span[1]) : 0);
  }

  function select(start, end) {
    var low = Math.max(Math.min(start, end), frame[0]), high = Math.min(Math.max(start, end), frame[1]);
    span = low <= frame[0] && high >= frame[1] ? null : [low, Math.max(high, low + length / 1000)];
    from.value = span ? step(span[0]) : 0;
    to.value = span ? step(span[1]) : STEPS;
    from.setAttribute("aria-valuetext", clock(span ? span[0] : frame[0]));
    to.setAttribute("aria-valuetext", clock(span ? span[1] : frame[1]));
    var words = span ? clock(span[0]) + " to " + clock(span[1]) : "";
    form.querySelector("output").textContent = span ? words + " UTC is selected" : "";
    note.firstElementChild.textContent = "Findings and charts show only " + words + " UTC.";
    note.hidden = !span;
    each(".outside", coverTheRest);
    each("[data-start][data-end]", function (part) {
      var data = part.dataset;
      part.classList.toggle("elsewhere", Boolean(span) && (Number(data.start) > span[1] || Number(data.end) < span[0]));
    });
    each("#span [data-span]", function (button) {
      var own = spanOf(button);
      button.setAttribute("aria-pressed", String(start === own[0] && end === own[1]));
    });
    document.dispatchEvent(new CustomEvent("span", { detail: span }));
  }
  function clear() { select(frame[0], frame[1]); }

  function move(event) {
    var by = { ArrowLeft: -1, ArrowRight: 1 }[event.key] * length / STEPS * 4;
    if (event.key === "Escape") { clear(); return; }
    if (!by) { return; }
    event.preventDefault();
    if (!span) { select(frame[0], frame[0] + length / 10); return; }
    if (event.shiftKey) { select(span[0], Math.max(span[1] + by, span[0] + length / STEPS)); return; }
    by = Math.min(Math.max(by, frame[0] - span[0]), frame[1] - span[1]);
    select(span[0] + by, span[1] + by);
  }

  function makeDraggable(chart) {
    var plot = chart.querySelector(".outside"), width = Number(plot.dataset.frame.split(" ")[2]), begun = null;
    var at = function (event) {
      var matrix = plot.getScreenCTM();
      return frame[0] + Math.min(Math.max((event.clientX - matrix.e) / matrix.a / width, 0), 1) * length;
    };
    chart.addEventListener("pointerdown", function (event) {
      if (event.button) { return; }
      begun = { x: event.clientX, at: at(event), moved: false };
      chart.setPointerCapture(event.pointerId);
    });
    chart.addEventListener("pointermove", function (event) {
      if (!begun) { return; }
      begun.moved = begun.moved || Math.abs(event.clientX - begun.x) > 4;
      if (begun.moved) { select(begun.at, at(event)); }
    });
    chart.addEventListener("pointerup", function () {
      if (begun && !begun.moved) { clear(); }
      begun = null;
    });
    chart.addEventListener("pointercancel", function () { begun = null; });
    chart.addEventListener("keydown", move);
  }

  each("#timeline .chart", makeDraggable);
  form.addEventListener("input", function () { select(instant(Number(from.value)), instant(Number(to.value))); });
  form.addEventListener("reset", function (event) { event.preventDefault(); clear(); });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("keydown", function (event) { if (event.key === "Escape") { clear(); } });
  each("#span [data-span]", function (button) {
    button.addEventListener("click", function () { select.apply(null, spanOf(button)); });
  });
  note.querySelector("button").addEventListener("click", clear);
  form.hidden = false;
  clear();
})();
