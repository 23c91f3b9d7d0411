// Deliveries: how one value reaches all that read it, each in the layout that it asks for. A chain of reshard steps
// begins at the value itself, or at a result of an earlier chain if the wanted layout only cuts that further. If a
// chain passes through a layout that an earlier chain made, it continues from there. So what several readers need is
// done once. The partitioner emits these deliveries, and the planner prices them.
#pragma once

#include <functional>
#include <vector>

#include "trireme/layout/reshard.h"

namespace trireme {

// One operation on the ranks' pieces.
struct Delivery {
  enum class Kind {
    kStep,    // a reshard step
    kResize,  // dimensions that are whole get another size: cut off, or zeros added (layout.h, frame)
  };
  Kind kind = Kind::kStep;
  int from = 0;          // the piece that it is made of: 0 is the value itself, k what the k-th delivery made
  ReshardStep step;      // kStep
  Shape old_size, size;  // kResize: frames
  Layout layout;         // how the result lies
  Shape whole;           // the shape that it is a layout of
};

class Deliveries {
 public:
  // A value of this type that lies so. The planner must outlive this.
  Deliveries(Layout own, TensorType whole, ReshardPlanner& planner);

  // The piece, counted as Delivery::from, that is the value in this layout; what is missing is added to all().
  // `reader` is any number by which the caller knows who asks, and `shares` says whether what was made for a reader
  // before serves this one too. The value itself serves all. Throws as plan_reshard does.
  int deliver(const Layout& want, int reader = 0, const std::function<bool(int reader)>& shares = {});

  const Layout& own() const { return served_.front().layout; }
  const TensorType& whole() const { return whole_; }
  const std::vector<Delivery>& all() const { return all_; }

 private:
  struct Served {
    Layout layout;
    int piece = 0;
    int reader = 0;
  };

  int find(const Layout& layout, const std::function<bool(int)>& shares) const;
  int bring(const Served& start, const Layout& want, int reader, const std::function<bool(int)>& shares);
  // Steps between layouts of one frame, `size`.
  int take_steps(int piece, const Layout& from, const Layout& to, const Shape& size, int reader,
                 const std::function<bool(int)>& shares);
  int resize(int piece, const Layout& layout, const Shape& old_size, const Shape& size, const Shape& whole);

  TensorType whole_;
  ReshardPlanner& planner_;
  std::vector<Served> served_;  // pieces that others may be made of; the first is the value itself
  std::vector<Delivery> all_;
};

// All that readers need who ask in this order; who asks as another did shares.
std::vector<Delivery> deliveries(const Layout& have, const std::vector<Layout>& wants, const TensorType& whole,
                                 ReshardPlanner& planner);

}  // namespace trireme
