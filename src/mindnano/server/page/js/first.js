// Before the first paint: theme and language as they were last chosen. Not a module, so that it blocks.
"use strict";
try {
  const { theme, language } = JSON.parse(localStorage.getItem("mindnano.settings") || "{}");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  const zh = language === "zh" || (language !== "en" && navigator.language.toLowerCase().startsWith("zh"));
  document.documentElement.lang = zh ? "zh-CN" : "en";
} catch {
  // storage that is blocked or damaged: the defaults
}
