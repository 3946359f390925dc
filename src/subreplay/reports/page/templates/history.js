(function () {
  "use strict";
  Array.prototype.forEach.call(document.querySelectorAll("table.sortable"), makeSortable);
})();
