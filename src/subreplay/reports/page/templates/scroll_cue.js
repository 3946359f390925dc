(function () {
  "use strict";
  var regions = document.querySelectorAll(".scroll, .chart, .toc");
  var mark = function (region) {
    var rest = region.scrollWidth - region.clientWidth;
    region.classList.toggle("cut", rest > 2);
    region.classList.toggle("at-end", region.scrollLeft >= rest - 2);
  };
  var markAll = function () { regions.forEach(mark); };
  regions.forEach(function (region) {
    region.addEventListener("scroll", function () { mark(region); }, { passive: true });
  });
  document.addEventListener("toggle", markAll, true);
  window.addEventListener("resize", markAll);
  markAll();
})();
