#include "kernels/mla_history.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bindings/bindings.hpp"
#include "bindings/matrix.hpp"
#include "bindings/mla.hpp"
#include "core/buffer.hpp"

namespace mn {
namespace {

using Memory = std::optional<Out<uint8_t>>;

class HeadHistory {
 public:
  HeadHistory(const std::string& format, int64_t heads, int64_t nope, int64_t rope, int64_t v_dims,
              const std::string& layout)
      : format_(parse_format(format)), heads_(heads), nope_(nope), rope_(rope), v_dims_(v_dims) {
    require(layout == "cpu" || layout == "rknpu", "layout: expected cpu or rknpu, got '" + layout + "'");
    layout_ = layout == "cpu" ? HistoryLayout::cpu : HistoryLayout::rknpu;
    require(layout_ == HistoryLayout::cpu || format_ == Format::int8 || format_ == Format::fp16,
            "format: rknpu has int8 and fp16, got '" + format + "'");
    auto check = [](int64_t value, int64_t least, const char* name) {
      require(value >= least && value % 8 == 0 && value <= 1024,
              std::string(name) + ": expected a multiple of 8, " + std::to_string(least) + " to 1024, got " +
                  std::to_string(value));
    };
    require(heads >= 1 && heads <= 4096, "heads: expected 1 to 4096, got " + std::to_string(heads));
    check(nope, 0, "nope_dims");
    check(rope, 0, "rope_dims");
    check(v_dims, 8, "v_dims");
    require(nope + rope >= 8 && nope + rope <= 1040,
            "nope_dims + rope_dims: expected 8 to 1040, got " + std::to_string(nope + rope));
  }

  int64_t bytes_for(int64_t length, int64_t count) const {
    History h = shape(0, length, 0, count);
    return h.heads * h.tiles * h.tile_bytes();
  }

  nb::tuple load_latent(const LatentKV& kv, int64_t length, int64_t head, int64_t count, const Matrix& kv_b,
                        int64_t begin, const Memory& memory) {
    const LatentView& view = kv.view;
    require_range(begin, length, view.capacity, head, count);
    require(view.rope_dims == rope_, "view: expected " + std::to_string(rope_) + " rope values, got " +
                                         std::to_string(view.rope_dims));
    require(kv_b.count == 1 && kv_b.rows == heads_ * (nope_ + v_dims_) && kv_b.cols == view.rank &&
                kv_b.format != WeightFormat::w4,
            "kv_b: expected one W8 or dense [" + std::to_string(heads_ * (nope_ + v_dims_)) + ", " +
                std::to_string(view.rank) + "], got " + describe(kv_b));
    Stages stages;
    reserve(begin, length, head, count, memory);
    HistoryLatentArgs args{history_, view, heads_, nope_, {}, nullptr, Format::fp32, nullptr, &stages};
    if (kv_b.quantized()) {
      args.packed = kv_b.packed();
    } else {
      args.dense = kv_b.data[0];
      args.dense_format = kv_b.format == WeightFormat::fp32   ? Format::fp32
                          : kv_b.format == WeightFormat::bf16 ? Format::bf16
                                                              : Format::fp16;
      args.panels = static_cast<float*>(panels_.reserve(count * args.panels_a_head() * view.rank * 64));
    }
    {
      nb::gil_scoped_release release;
      history_load_latent(args);
    }
    return stage_seconds(stages);
  }

  nb::tuple load_expanded(const ExpandedKV& kv, int64_t length, int64_t head, int64_t count, int64_t begin,
                          const Memory& memory) {
    const ExpandedView& v = kv.view;
    require_range(begin, length, v.capacity, head, count);
    require(v.heads == heads_ && v.k_dims == nope_ + rope_ && v.v_dims == v_dims_,
            "view: expected [H, Dk, Dv] of [" + std::to_string(heads_) + ", " +
                std::to_string(nope_ + rope_) + ", " + std::to_string(v_dims_) + "], got [" +
                std::to_string(v.heads) + ", " + std::to_string(v.k_dims) + ", " + std::to_string(v.v_dims) +
                "]");
    Stages stages;
    reserve(begin, length, head, count, memory);
    {
      nb::gil_scoped_release release;
      history_load_expanded({history_, v, &stages});
    }
    return stage_seconds(stages);
  }

  nb::tuple attend_rows(In<float> q, int64_t start, int64_t begin, int64_t end, float scale, Out<float> out) {
    require(layout_ == HistoryLayout::cpu, "layout: what is laid out for the NPU is attended there");
    require(q.ndim() == 3, "q: expected [T, H, Dk], got " + shape_text(q));
    const int64_t rows = q.shape(0);
    require_shape(q, {rows, heads_, nope_ + rope_}, "q");
    require_shape(out, {rows, heads_, v_dims_}, "out");
    require(0 <= begin && begin <= end && end <= rows,
            "row_begin, row_end: expected a range inside 0 to " + std::to_string(rows) + ", got " +
                std::to_string(begin) + " to " + std::to_string(end));
    require(start >= 0 && start + end <= history_.length,
            "start: rows up to " + std::to_string(start + end) +
                " need a history of as many tokens, loaded are " + std::to_string(history_.length));
    Stages stages;
    if (begin < end) {
      nb::gil_scoped_release release;
      attend({history_, q.data(), out.data(), heads_, start, begin, end, scale, &stages});
    }
    return stage_seconds(stages);
  }

  void release() {
    history_.length = 0;
    data_.release();
    panels_.release();
  }
  int64_t nbytes() const { return data_.bytes() + panels_.bytes(); }
  int64_t length() const { return history_.length; }
  std::string format() const { return format_text(format_); }

  nb::tuple tile_parts() const {
    History h = shape(0, kTileKeys, 0, 1);
    return nb::make_tuple(h.k_bytes(), h.v_bytes(), h.tile_bytes());
  }
  bool fits() const { return !unfit_.load(); }

 private:
  History shape(int64_t begin, int64_t length, int64_t head, int64_t count) const {
    const int64_t tiles = (length - begin + kTileKeys - 1) / kTileKeys;
    return {format_, layout_, nullptr, head, count, begin, length, tiles, nope_ + rope_, v_dims_, nullptr};
  }
  void reserve(int64_t begin, int64_t length, int64_t head, int64_t count, const Memory& memory) {
    history_.length = 0;
    unfit_ = false;
    History history = shape(begin, length, head, count);
    const int64_t bytes = history.heads * history.tiles * history.tile_bytes();
    if (memory) {
      require(memory->ndim() == 1 && static_cast<int64_t>(memory->nbytes()) >= bytes,
              "memory: expected [" + std::to_string(bytes) + "] or more, got " + shape_text(*memory));
      require(reinterpret_cast<uintptr_t>(memory->data()) % 64 == 0,
              "memory: expected alignment to 64 bytes");
      history.data = memory->data();
    } else {
      require(begin == 0 && layout_ == HistoryLayout::cpu,
              "memory: expected for a part of the history and for rknpu");
      history.data = static_cast<uint8_t*>(data_.reserve(bytes));
    }
    history.unfit = &unfit_;
    history_ = history;
  }
  void require_range(int64_t begin, int64_t length, int64_t capacity, int64_t head, int64_t count) const {
    require(length >= 1 && length <= capacity,
            "length: expected 1 to " + std::to_string(capacity) + ", got " + std::to_string(length));
    require(begin >= 0 && begin < length && begin % kTileKeys == 0,
            "begin: expected a multiple of " + std::to_string(kTileKeys) + " below " +
                std::to_string(length) + ", got " + std::to_string(begin));
    require(head >= 0 && count >= 1 && count <= heads_ - head && head < heads_,
            "head, count: expected a range inside 0 to " + std::to_string(heads_) + ", got " +
                std::to_string(head) + " and " + std::to_string(count));
  }

  Format format_;
  HistoryLayout layout_;
  int64_t heads_, nope_, rope_, v_dims_;
  History history_{};
  Buffer data_, panels_;
  std::atomic<bool> unfit_{false};
};

}  // namespace

void bind_history(nb::module_& m) {
  nb::class_<HeadHistory>(
      m, "HeadHistory", "Scratch for prefill: K and V of a few heads over a history, in the kernel's layout.")
      .def(nb::init<const std::string&, int64_t, int64_t, int64_t, int64_t, const std::string&>(),
           nb::arg("format"), nb::arg("heads"), nb::arg("nope_dims"), nb::arg("rope_dims"), nb::arg("v_dims"),
           nb::arg("layout") = "cpu")
      .def("bytes_for", &HeadHistory::bytes_for, nb::arg("length"), nb::arg("count"),
           "Bytes that `count` heads over `length` tokens take.")
      .def("load_latent", &HeadHistory::load_latent, nb::arg("view"), nb::arg("length"), nb::arg("head"),
           nb::arg("count"), nb::arg("kv_b"), nb::arg("begin") = 0,
           nb::arg("memory").noconvert() = nb::none(),
           "K and V of tokens begin..length for heads head..head+count from the latent, into `memory` where "
           "it is "
           "given. Returns seconds (pack, matmul, softmax).")
      .def("load_expanded", &HeadHistory::load_expanded, nb::arg("view"), nb::arg("length"), nb::arg("head"),
           nb::arg("count"), nb::arg("begin") = 0, nb::arg("memory").noconvert() = nb::none(),
           "The same from an expanded cache.")
      .def("tile_parts", &HeadHistory::tile_parts,
           "Bytes of K, of V, and of all of one head's tile of 512 tokens; after V come int8's scales, K's "
           "first.")
      .def_prop_ro("fits", &HeadHistory::fits, "Whether FP16 held all that was loaded last for rknpu.")
      .def("attend", &HeadHistory::attend_rows, nb::arg("q").noconvert(), nb::arg("start"),
           nb::arg("row_begin"), nb::arg("row_end"), nb::arg("scale"), nb::arg("out").noconvert(),
           "Causal attention of rows row_begin..row_end of q [T, H, Dk] for the loaded heads: row t sees "
           "start+t+1 keys.")
      .def("release", &HeadHistory::release, "Gives the memory back.")
      .def_prop_ro("nbytes", &HeadHistory::nbytes)
      .def_prop_ro("length", &HeadHistory::length)
      .def_prop_ro("format", &HeadHistory::format);
}

}  // namespace mn
