(function () {
  "use strict";
  var form = document.getElementById("filter"), table = document.getElementById("rows");
  var rows = Array.prototype.slice.call(table.tBodies[0].rows);
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
  makeSortable(table);
  form.addEventListener("input", apply);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  apply();
})();
