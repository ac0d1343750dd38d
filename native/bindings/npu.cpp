#include "kernels/npu.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bindings/bindings.hpp"
#include "bindings/matrix.hpp"
#include "bindings/mla.hpp"
#include "kernels/mla_history.hpp"

namespace mn {
namespace {

Format npu_format(const std::string& name) {
  const Format format = parse_format(name);
  require(format == Format::int8 || format == Format::fp16,
          "format: expected int8 or fp16, got '" + name + "'");
  return format;
}

template <class A>
void require_bytes(const A& memory, int64_t bytes, const char* name) {
  require(memory.ndim() == 1 && static_cast<int64_t>(memory.nbytes()) >= bytes,
          std::string(name) + ": expected " + std::to_string(bytes) + " bytes or more, got " +
              shape_text(memory));
  require(reinterpret_cast<uintptr_t>(memory.data()) % 16 == 0,
          std::string(name) + ": expected alignment to 16 bytes");
}

void require_rows(int64_t rows, int64_t capacity) {
  require(rows >= 1 && rows <= capacity,
          "capacity: expected at least " + std::to_string(rows) + " rows, got " + std::to_string(capacity));
}

void require_depth(int64_t depth, int64_t least) {
  require(
      depth >= least && depth % kNpuDepth == 0,
      "depth: expected a multiple of 32 from " + std::to_string(least) + " on, got " + std::to_string(depth));
}

bool queries(const std::string& name, In<float> q, int64_t head, int64_t begin, int64_t end, float scale,
             int64_t depth, int64_t capacity, Out<uint8_t> a, Out<float> row_scales) {
  const Format format = npu_format(name);
  require(q.ndim() == 3, "q: expected [T, H, Dk], got " + shape_text(q));
  const int64_t tokens = q.shape(0), heads = q.shape(1), dims = q.shape(2), rows = end - begin;
  require(head >= 0 && head < heads, "head: expected one of " + std::to_string(heads));
  require(dims % 8 == 0, "q: expected a width that 8 divides, got " + shape_text(q));
  require(begin >= 0 && end <= tokens, "begin, end: expected a range inside 0 to " + std::to_string(tokens));
  require_rows(rows, capacity);
  require_depth(depth, dims);
  require_bytes(a, depth * capacity * format_bytes(format), "a");
  require_shape(row_scales, {rows}, "row_scales");
  std::atomic<bool> unfit{false};
  nb::gil_scoped_release release;
  npu_queries({format, q.data() + (begin * heads + head) * dims, a.data(), row_scales.data(), rows, capacity,
               heads * dims, dims, depth, scale, &unfit});
  return !unfit;
}

void softmax(const std::string& name, In<uint8_t> scores, std::optional<In<float>> row_scales,
             std::optional<In<float>> k_scales, std::optional<In<float>> v_scales, int64_t seen, int64_t rows,
             int64_t capacity, Out<float> m, Out<float> l, Out<float> decay, Out<float> p_scale,
             Out<uint8_t> p) {
  const Format format = npu_format(name);
  require_rows(rows, capacity);
  require(seen + rows > 0 && seen > -(int64_t{1} << 40) && seen < int64_t{1} << 40,
          "seen: expected some row to see a key, got " + std::to_string(seen));
  require_bytes(scores, kTileKeys * capacity * 4, "scores");
  require_bytes(p, kTileKeys * capacity * format_bytes(format), "p");
  for (auto* state : {&m, &l, &decay, &p_scale}) require_shape(*state, {rows}, "m, l, decay, p_scale");
  if (format == Format::int8) {
    require(row_scales && k_scales && v_scales, "scales: expected for int8");
    require_shape(*row_scales, {rows}, "row_scales");
    require_shape(*k_scales, {kTileKeys}, "k_scales");
    require_shape(*v_scales, {kTileKeys}, "v_scales");
  }
  auto data = [](const std::optional<In<float>>& scales) { return scales ? scales->data() : nullptr; };
  nb::gil_scoped_release release;
  npu_softmax({format, scores.data(), data(row_scales), data(k_scales), data(v_scales), m.data(), l.data(),
               decay.data(), p_scale.data(), p.data(), rows, capacity, seen});
}

void accumulate(const std::string& name, In<uint8_t> sums, In<float> decay, In<float> p_scale, int64_t first,
                int64_t capacity, Out<float> o) {
  const Format format = npu_format(name);
  require(o.ndim() == 2 && o.shape(1) % 8 == 0,
          "o: expected [rows, dims], 8 dividing dims, got " + shape_text(o));
  const int64_t rows = o.shape(0), dims = o.shape(1);
  require_rows(rows, capacity);
  require(first >= 0 && first < rows, "first: expected 0 to " + std::to_string(rows - 1));
  require_bytes(sums, dims * capacity * 4, "sums");
  require_shape(decay, {rows}, "decay");
  require_shape(p_scale, {rows}, "p_scale");
  nb::gil_scoped_release release;
  npu_accumulate({format, sums.data(), decay.data(), p_scale.data(), o.data(), first, rows, capacity, dims});
}

int64_t check(const std::string& name, In<uint8_t> a, In<uint8_t> b, In<uint8_t> c, int64_t first,
              int64_t rows, int64_t capacity, int64_t depth, int64_t cols, int64_t samples, uint64_t seed) {
  const Format format = npu_format(name);
  require_rows(rows, capacity);
  require(first >= 0 && first < rows, "first: expected 0 to " + std::to_string(rows - 1));
  require_depth(depth, 32);
  require(cols >= 1, "cols: expected at least 1, got " + std::to_string(cols));
  const int64_t padded = (cols + 31) / 32 * 32;
  require_bytes(a, depth * capacity * format_bytes(format), "a");
  require_bytes(b, depth * padded * format_bytes(format), "b");
  require_bytes(c, padded * capacity * 4, "c");
  int64_t wrong = 0;
  nb::gil_scoped_release release;
  npu_check(
      {format, a.data(), b.data(), c.data(), first, rows, capacity, depth, cols, samples, seed, &wrong});
  return wrong;
}

void require_w8(const Matrix& w) {
  require(w.format == WeightFormat::w8 && w.count == 1, "matrix: expected one of W8, got " + describe(w));
}

void require_outputs(const Matrix& w, int64_t first, int64_t outputs, int64_t cols) {
  require(first >= 0 && outputs >= 1 && outputs <= w.rows - first,
          "first, outputs: expected a range inside 0 to " + std::to_string(w.rows));
  require(first % 16 == 0, "first: expected a multiple of 16, got " + std::to_string(first));
  require(
      cols % 32 == 0 && cols >= outputs,
      "cols: expected a multiple of 32 from " + std::to_string(outputs) + " on, got " + std::to_string(cols));
}

void weights(const Matrix& w, int64_t first, int64_t outputs, int64_t cols, Out<uint8_t> b) {
  require_w8(w);
  require_outputs(w, first, outputs, cols);
  require_bytes(b, (w.cols + 31) / 32 * 32 * cols, "b");
  nb::gil_scoped_release release;
  npu_weights({w.packed(), reinterpret_cast<int8_t*>(b.data()), first, outputs, cols});
}

void inputs(In<int8_t> q, In<float> scales, In<int16_t> pairs, int64_t group, int64_t depth, int64_t capacity,
            Out<uint8_t> a) {
  const int64_t padded = q.ndim() == 2 ? static_cast<int64_t>(q.shape(1)) : 0;
  const QuantizedRows x = quantized_rows(q, scales, pairs, padded);
  require_rows(x.rows, capacity);
  require_depth(depth, 32);
  require(group >= 0 && depth <= 128 && 128 * group + depth <= padded,
          "group, depth: expected a range inside 0 to " + std::to_string(padded));
  require_bytes(a, depth * capacity, "a");
  nb::gil_scoped_release release;
  npu_inputs({x, reinterpret_cast<int8_t*>(a.data()), group, depth, capacity});
}

void combine(In<uint8_t> sums, int64_t c_bytes, int64_t first, int64_t groups, In<int8_t> q, In<float> scales,
             In<int16_t> pairs, const Matrix& w, int64_t row, int64_t outputs, int64_t cols, int64_t capacity,
             Out<float> acc, Out<float> out) {
  require_w8(w);
  require_outputs(w, row, outputs, cols);
  const QuantizedRows x = quantized_rows(q, scales, pairs, w.cols);
  require_rows(x.rows, capacity);
  require(groups >= 1 && first >= 0 && first + groups <= x.scale_stride,
          "first, groups: expected a range inside 0 to " + std::to_string(x.scale_stride));
  require(c_bytes >= cols * capacity * 4 && c_bytes % 16 == 0, "c_bytes: expected at least " +
                                                                   std::to_string(cols * capacity * 4) +
                                                                   ", got " + std::to_string(c_bytes));
  require_bytes(sums, (groups - 1) * c_bytes + cols * capacity * 4, "sums");
  require(
      acc.ndim() == 1 && static_cast<int64_t>(acc.shape(0)) >= (x.rows + 1) / 2 * 2 * cols,
      "acc: expected room for " + std::to_string((x.rows + 1) / 2 * 2 * cols) + ", got " + shape_text(acc));
  require_shape(out, {x.rows, outputs}, "out");
  nb::gil_scoped_release release;
  npu_combine({sums.data(), x, w.scales + row, acc.data(), out.data(), groups, first, c_bytes, capacity, cols,
               outputs, first + groups == x.scale_stride});
}

}  // namespace

void bind_npu(nb::module_& m) {
  m.def("npu_queries", &queries, nb::arg("format"), nb::arg("q").noconvert(), nb::arg("head"),
        nb::arg("begin"), nb::arg("end"), nb::arg("scale"), nb::arg("depth"), nb::arg("capacity"),
        nb::arg("a").noconvert(), nb::arg("row_scales").noconvert(),
        "Rows begin..end of one head of q [T, H, Dk] -> A of QK^T and int8's row scales. False where FP16 "
        "can't hold "
        "a value.");
  m.def("npu_softmax", &softmax, nb::arg("format"), nb::arg("scores").noconvert(), nb::arg("row_scales"),
        nb::arg("k_scales"), nb::arg("v_scales"), nb::arg("seen"), nb::arg("rows"), nb::arg("capacity"),
        nb::arg("m").noconvert(), nb::arg("l").noconvert(), nb::arg("decay").noconvert(),
        nb::arg("p_scale").noconvert(), nb::arg("p").noconvert(),
        "C of QK^T on a tile of 512 keys -> A of P V; row r sees the tile's first seen + r keys.");
  m.def("npu_accumulate", &accumulate, nb::arg("format"), nb::arg("sums").noconvert(),
        nb::arg("decay").noconvert(), nb::arg("p_scale").noconvert(), nb::arg("first"), nb::arg("capacity"),
        nb::arg("o").noconvert(), "o [rows, dims] = o * decay + p_scale * C of P V, for rows first on.");
  m.def("npu_check", &check, nb::arg("format"), nb::arg("a").noconvert(), nb::arg("b").noconvert(),
        nb::arg("c").noconvert(), nb::arg("first"), nb::arg("rows"), nb::arg("capacity"), nb::arg("depth"),
        nb::arg("cols"), nb::arg("samples"), nb::arg("seed"),
        "How many of some elements of C = A B, in rows first..rows and columns ..cols, are wrong.");
  m.def("npu_weights", &weights, nb::arg("matrix"), nb::arg("first"), nb::arg("outputs"), nb::arg("cols"),
        nb::arg("b").noconvert(), "W8 rows first.. -> B of each group of 128 inputs, one after the other.");
  m.def("npu_inputs", &inputs, nb::arg("q").noconvert(), nb::arg("scales").noconvert(),
        nb::arg("pairs").noconvert(), nb::arg("group"), nb::arg("depth"), nb::arg("capacity"),
        nb::arg("a").noconvert(), "One group's inputs of quantized rows -> A.");
  m.def(
      "npu_combine", &combine, nb::arg("sums").noconvert(), nb::arg("c_bytes"), nb::arg("first"),
      nb::arg("groups"), nb::arg("q").noconvert(), nb::arg("scales").noconvert(),
      nb::arg("pairs").noconvert(), nb::arg("matrix"), nb::arg("row"), nb::arg("outputs"), nb::arg("cols"),
      nb::arg("capacity"), nb::arg("acc").noconvert(), nb::arg("out").noconvert(),
      "C of groups first.. into acc, and after the last group into out [rows, outputs]: as linear_quantized, "
      "to the "
      "bit.");
}

}  // namespace mn
