(function () {
  "use strict";
  var list = function (nodes) { return Array.prototype.slice.call(nodes); };
  var form = document.getElementById("filter"), table = document.getElementById("rows");
  var body = table.tBodies[0], rows = list(body.rows), heads = list(table.tHead.rows[0].cells);
  var shown = document.getElementById("filter-count");
  var apply = function () {
    var verdict = form.elements.verdict.value, words = form.elements.words.value.toLowerCase().trim(), visible = 0;
    rows.forEach(function (row) {
      var fits = (!verdict || row.dataset.verdict === verdict) &&
        (!words || row.textContent.toLowerCase().indexOf(words) >= 0);
      row.hidden = !fits;
      visible += fits ? 1 : 0;
    });
    shown.textContent = visible + " of " + rows.length + " shown";
  };
  var sort = function (place) {
    var head = heads[place], text = !head.classList.contains("n") && place > 0;
    var up = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") !== "ascending" : text || place === 0;
    var value = function (row) { return row.cells[place].dataset.order; };
    heads.forEach(function (each) { each.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    rows.map(function (row, i) { return [row, i]; }).sort(function (a, b) {
      var x = value(a[0]), y = value(b[0]), order;
      if (x === "" || y === "") { return (x === "") - (y === "") || a[1] - b[1]; }
      order = text ? x.localeCompare(y) : Number(x) - Number(y);
      return (up ? order : -order) || a[1] - b[1];
    }).forEach(function (pair) { body.appendChild(pair[0]); });
  };
  heads.forEach(function (head, place) {
    head.firstElementChild.addEventListener("click", function () { sort(place); });
  });
  form.addEventListener("input", apply);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  apply();
})();
