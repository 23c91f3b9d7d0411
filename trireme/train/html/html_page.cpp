#include "trireme/train/html/html_page.h"

#include <fmt/core.h>

#include <cctype>

#include "trireme/train/html/escape_html.h"
#include "trireme/train/html/page_style.h"

namespace trireme {

namespace {

constexpr size_t kWideFact = 30;  // characters from which a fact gets a line of its own

}  // namespace

std::string html_page(const HtmlPage& page) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", escape_html(page.title),
                     kPageStyle);
  out +=
      fmt::format("<header>\n<h1>{}</h1>\n<p>{}</p>\n</header>\n", escape_html(page.title), escape_html(page.summary));
  out += page.body + fmt::format("<footer>{}</footer>\n</main>\n", escape_html(page.footer));
  return out + fmt::format("<script>{}</script>\n</body>\n</html>\n", kPageScript);
}

std::string html_section(std::string_view title, std::string_view aside, const std::string& body) {
  return fmt::format("<section>\n<h2>{}{}</h2>\n{}</section>\n", escape_html(title),
                     aside.empty() ? "" : fmt::format("<small>{}</small>", escape_html(aside)), body);
}

std::string html_tiles(const HtmlPairs& labels_and_values) {
  if (labels_and_values.empty()) return "";
  std::string out = "<div class=\"tiles\">\n";
  for (const auto& [label, value] : labels_and_values)
    out += fmt::format("<div><b>{}</b><span>{}</span></div>\n", escape_html(value), escape_html(label));
  return out + "</div>\n";
}

std::string html_list(const HtmlPairs& names_and_values) {
  std::string out = "<dl>\n";
  for (const bool wide : {false, true}) {
    for (const auto& [name, value] : names_and_values) {
      if ((value.size() >= kWideFact) != wide) continue;
      out += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>\n", wide ? " class=\"wide\"" : "", escape_html(name),
                         escape_html(value));
    }
  }
  return out + "</dl>\n";
}

std::string html_note(std::string_view text) {
  return fmt::format("<p class=\"note\">{}</p>\n", escape_html(text));
}

namespace {

// A name of parts, "h.0.mlp", may be broken after its dots.
std::string breakable(const std::string& cell) {
  std::string out = escape_html(cell);
  for (size_t at = out.find('.'); at != std::string::npos; at = out.find('.', at + 1)) {
    const bool in_name = at > 0 && at + 1 < out.size() && std::isalpha(static_cast<unsigned char>(out[at + 1])) != 0;
    if (in_name) out.insert(at + 1, "<wbr>");
  }
  return out;
}

}  // namespace

std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                       size_t first_number) {
  const auto row = [&](const std::vector<std::string>& cells, const char* tag) {
    std::string out = "<tr>";
    for (size_t i = 0; i < cells.size(); ++i)
      out += fmt::format("<{}{}>{}</{}>", tag, i >= first_number ? " class=\"n\"" : "",
                         i == 0 ? breakable(cells[i]) : escape_html(cells[i]), tag);
    return out + "</tr>\n";
  };
  std::string out = "<div class=\"wide\"><table class=\"cells\">\n" + row(head, "th");
  for (const std::vector<std::string>& cells : rows) out += row(cells, "td");
  return out + "</table></div>\n";
}

}  // namespace trireme
