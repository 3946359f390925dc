(function () {
  "use strict";
  var form = document.getElementById("filter");
  if (form) {
    var findings = Array.prototype.slice.call(document.querySelectorAll(".finding"));
    var codes = Array.prototype.slice.call(document.querySelectorAll(".code"));
    var shown = document.getElementById("filter-count");
    var apply = function () {
      var code = form.elements.code.value, consumer = form.elements.consumer.value;
      var words = form.elements.words.value.toLowerCase().trim(), narrowed = consumer || words, visible = 0;
      findings.forEach(function (item) {
        var fits = (!code || item.dataset.code === code) && (!consumer || item.dataset.consumer === consumer) &&
          (!words || item.textContent.toLowerCase().indexOf(words) >= 0);
        item.hidden = !fits;
        visible += fits ? 1 : 0;
      });
      codes.forEach(function (card) {
        var any = card.querySelector(".finding:not([hidden])") !== null;
        card.hidden = (code && card.dataset.code !== code) || (narrowed && !any);
        if (narrowed && any) { card.open = true; }
      });
      shown.textContent = visible + " of " + findings.length + " findings shown";
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("reset", function () { window.setTimeout(apply, 0); });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    apply();
  }
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (part) { part.open = true; });
  });
})();
