var makeSortable = function (table) {
  "use strict";
  var list = function (nodes) { return Array.prototype.slice.call(nodes); };
  var body = table.tBodies[0], rows = list(body.rows), heads = list(table.tHead.rows[0].cells);
  var lowFirst = table.dataset.first === "ascending";
  var sort = function (place) {
    var head = heads[place], text = !head.classList.contains("n"), before = head.getAttribute("aria-sort");
    var up = before ? before !== "ascending" : text || lowFirst;
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
    head.querySelector("button").addEventListener("click", function () { sort(place); });
  });
};
