// The parts of which all HTML pages are made: a page that needs no other file, sections, tiles, lists and tables. Text
// is escaped; `body` is HTML.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

using HtmlPairs = std::vector<std::pair<std::string, std::string>>;

struct HtmlPage {
  std::string title, summary;
  std::string body;
  std::string footer;
};
std::string html_page(const HtmlPage& page);

std::string html_section(std::string_view title, std::string_view aside, const std::string& body);
std::string html_tiles(const HtmlPairs& labels_and_values);  // nothing for none
std::string html_list(const HtmlPairs& names_and_values);    // long values get a line of their own
std::string html_note(std::string_view text);
// All rows have as many cells as the head. Numbers, in all columns from `first_number` on, stand at the right.
std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                       size_t first_number = 1);

}  // namespace trireme
