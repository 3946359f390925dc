(function () {
  "use strict";
  var form = document.getElementById("filter");
  if (form) {
    var list = function (nodes) { return Array.prototype.slice.call(nodes); };
    var names = ["source", "code", "consumer", "window"];
    var rows = list(document.querySelectorAll(".finding")).map(function (item) {
      return { item: item, at: item.dataset.in.split(" "), text: null };
    });
    var cards = list(document.querySelectorAll(".code"));
    var bounds = form.dataset.windows.split(" ").map(Number);  // start and end of each choice, µs
    var span = null;  // start and end of the selected time, µs
    var tallies = form.dataset.found ? form.dataset.found.split(" ") : [];
    var area = document.getElementById("finding-rows");
    var shown = document.getElementById("filter-count");
    var number = function (n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); };
    var wanted = function () {
      return names.map(function (name) { return form.elements[name] ? form.elements[name].value : ""; });
    };
    var isInSpan = function (choice) {
      return span === null || (bounds[2 * choice] < span[1] && bounds[2 * choice + 1] > span[0]);
    };
    var fits = function (want, at, from) {
      return want.every(function (value, i) { return value === "" || value === at[from + i]; }) &&
        (want.length < names.length || isInSpan(Number(at[from + 3])));
    };
    var found = function (want) {
      var sum = 0, i;
      if (want[2] === "" && want[3] === "" && span === null) {
        cards.forEach(function (card) {
          sum += fits(want.slice(0, 2), [card.dataset.source, card.dataset.code], 0) ? Number(card.dataset.count) : 0;
        });
        return sum;
      }
      for (i = 0; i < tallies.length; i += 5) { sum += fits(want, tallies, i) ? Number(tallies[i + 4]) : 0; }
      return tallies.length ? sum : null;
    };
    var apply = function () {
      var want = wanted(), words = form.elements.words.value.toLowerCase().trim(), visible = 0, filled = new Set(), all;
      rows.forEach(function (row) {
        var fit = fits(want, row.at, 0);
        if (fit && words) {
          row.text = row.text || row.item.textContent.toLowerCase();
          fit = row.text.indexOf(words) >= 0;
        }
        row.item.hidden = !fit;
        if (fit) { visible += 1; filled.add(row.at[0] + " " + row.at[1]); }
      });
      var narrowed = words || span || want.join("");
      cards.forEach(function (card) {
        var any = filled.has(card.dataset.source + " " + card.dataset.code);
        card.hidden = !any;
        if (narrowed && any) { card.open = true; }
      });
      all = words ? null : found(want);
      shown.textContent = number(visible) + " of " + number(rows.length) + " rows shown" +
        (all === null ? "" : "; " + number(all) + " such findings in " + (span ? "the selected time" : "all"));
    };
    area.style.minHeight = Math.min(area.offsetHeight, window.innerHeight) + "px";
    form.addEventListener("input", apply);
    form.addEventListener("reset", function () { window.setTimeout(apply, 0); });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    document.addEventListener("span", function (event) { span = event.detail; apply(); });
    apply();
  }
  Array.prototype.forEach.call(document.querySelectorAll("table.sortable"), makeSortable);
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (part) { part.open = true; });
  });
})();
