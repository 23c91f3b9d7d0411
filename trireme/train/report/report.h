// The story of a finished run as one HTML file that needs nothing beside it: facts, curves, where
// memory and time went, and samples. Text in the data may contain anything; it is escaped.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/html/area_chart.h"
#include "trireme/train/html/chart.h"

namespace trireme {

enum class TimeGroup { kCompute, kCommunication, kData, kOther };

struct ReportData {
  std::string title;                                          // the model's or the configuration's name
  std::string summary;                                        // a sentence below it
  std::vector<std::pair<std::string, std::string>> headline;  // the few figures that matter: label, value
  std::vector<std::pair<std::string, std::string>> facts;     // name, value: ranks, transport, command...

  std::vector<ChartPoint> train_loss;
  std::vector<ChartPoint> validation_loss;
  std::vector<ChartPoint> throughput;  // units per second
  std::vector<ChartPoint> learning_rate;
  std::string unit = "tokens";

  struct Memory {
    std::string kind;
    int64_t bytes = 0;
  };
  std::vector<Memory> memory;                                       // of the rank with the most, in the order to show
  int64_t memory_limit = 0;                                         // 0: none to show
  std::vector<std::pair<std::string, AreaChart>> memory_over_time;  // by the tier's name

  struct Time {
    std::string name;
    double ms = 0;
    TimeGroup group = TimeGroup::kCompute;
  };
  std::vector<Time> time;                                // of a mean step; what is listed adds up to the step
  std::string timeline;                                  // a drawing (timeline.h); "": none
  std::vector<std::pair<std::string, double>> run_time;  // name, seconds: where the whole run's time went
  double hidden_comm_ms = 0;                             // communication that ran beside computing, not part of the sum

  struct Sample {
    std::string prompt;
    std::string text;
  };
  std::vector<Sample> samples;
};

std::string render_report(const ReportData& data);
// Writes it whole or not at all.
void write_report(const std::string& path, const ReportData& data);

}  // namespace trireme
