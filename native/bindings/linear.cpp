#include "kernels/linear.hpp"

#include "bindings/bindings.hpp"
#include "bindings/matrix.hpp"
#include "kernels/quantize.hpp"

namespace mn {
namespace {

// Width of out [tokens, width], which must hold `rows` columns from `column` on.
int64_t output_width(const Out<float>& out, int64_t tokens, int64_t rows, int64_t column) {
  require(out.ndim() == 2 && static_cast<int64_t>(out.shape(0)) == tokens,
          "out: expected [" + std::to_string(tokens) + ", W], got " + shape_text(out));
  const int64_t width = out.shape(1);
  require(column >= 0 && column <= width - rows, "column: expected room for " + std::to_string(rows) +
                                                     " columns from " + std::to_string(column) +
                                                     " on, got an output of width " + std::to_string(width));
  return width;
}

void bind_dense(nb::module_& m) {
  m.def(
      "linear_dense",
      [](In<float> x, const Matrix& w, Out<float> out, int64_t column, bool accumulate) {
        require(!w.quantized() && w.count == 1, "matrix: expected one dense matrix, got " + describe(w));
        require(x.ndim() == 2 && static_cast<int64_t>(x.shape(1)) == w.cols,
                "x: expected [T, " + std::to_string(w.cols) + "], got " + shape_text(x));
        const int64_t tokens = x.shape(0), width = output_width(out, tokens, w.rows, column);
        if (tokens == 0) return;
        nb::gil_scoped_release release;
        linear_dense({{w.dense_type(), w.data[0], w.rows, w.cols},
                      x.data(),
                      out.data(),
                      tokens,
                      width,
                      column,
                      accumulate});
      },
      nb::arg("x").noconvert(), nb::arg("matrix"), nb::arg("out").noconvert(), nb::arg("column") = 0,
      nb::arg("accumulate") = false);
  m.def(
      "linear_heads_dense",
      [](In<float> x, const Matrix& w, Out<float> out) {
        require(!w.quantized(), "matrix: expected a dense matrix, got " + describe(w));
        require(x.ndim() == 3, "x: expected [T, H, K], got " + shape_text(x));
        const int64_t tokens = x.shape(0);
        require_shape(x, {tokens, w.count, w.cols}, "x");
        require_shape(out, {tokens, w.count, w.rows}, "out");
        if (tokens == 0) return;
        nb::gil_scoped_release release;
        linear_heads_dense(
            {w.dense_type(), w.data.data(), w.rows, w.cols, x.data(), out.data(), tokens, w.count});
      },
      nb::arg("x").noconvert(), nb::arg("matrix"), nb::arg("out").noconvert());
}

void bind_quantize(nb::module_& m) {
  m.def(
      "quantize_rows",
      [](In<float> x, Out<int8_t> q, Out<float> scales, Out<int16_t> pairs) {
        require(x.ndim() == 2 && x.shape(1) >= 1, "x: expected [T, K], got " + shape_text(x));
        int64_t rows = x.shape(0), cols = x.shape(1), groups = (cols + 31) / 32;
        require_shape(q, {rows, groups * 32}, "q");
        require_shape(scales, {rows, (groups + 3) / 4}, "scales");
        require_shape(pairs, {rows, groups, 2}, "pairs");
        nb::gil_scoped_release release;
        quantize_rows({x.data(), q.data(), scales.data(), pairs.data(), rows, cols});
      },
      nb::arg("x").noconvert(), nb::arg("q").noconvert(), nb::arg("scales").noconvert(),
      nb::arg("pairs").noconvert());
}

}  // namespace

QuantizedRows quantized_rows(const In<int8_t>& q, const In<float>& scales, const In<int16_t>& pairs,
                             int64_t cols) {
  const int64_t groups = (cols + 31) / 32;
  require(q.ndim() == 2 && static_cast<int64_t>(q.shape(1)) == groups * 32,
          "q: expected [T, " + std::to_string(groups * 32) + "], got " + shape_text(q));
  const int64_t rows = q.shape(0);
  require_shape(scales, {rows, (groups + 3) / 4}, "scales");
  require_shape(pairs, {rows, groups, 2}, "pairs");
  return {q.data(), scales.data(), pairs.data(), rows, groups * 32, (groups + 3) / 4, groups * 2};
}

void bind_linear(nb::module_& m) {
  bind_quantize(m);
  bind_dense(m);
  m.def(
      "linear_quantized",
      [](In<int8_t> q, In<float> scales, In<int16_t> pairs, const Matrix& w, Out<float> out, int64_t column,
         bool accumulate) {
        require(w.quantized() && w.count == 1, "matrix: expected one of W4 or W8, got " + describe(w));
        QuantizedRows x = quantized_rows(q, scales, pairs, w.cols);
        const int64_t width = output_width(out, x.rows, w.rows, column);
        if (x.rows == 0) return;
        nb::gil_scoped_release release;
        linear_quantized({w.packed(), x, out.data(), width, column, accumulate});
      },
      nb::arg("q").noconvert(), nb::arg("scales").noconvert(), nb::arg("pairs").noconvert(),
      nb::arg("matrix"), nb::arg("out").noconvert(), nb::arg("column") = 0, nb::arg("accumulate") = false);
  m.def(
      "linear_heads",
      [](In<int8_t> q, In<float> scales, In<int16_t> pairs, const Matrix& w, Out<float> out) {
        require(w.quantized(), "matrix: expected W4 or W8, got " + describe(w));
        QuantizedRows x = quantized_rows(q, scales, pairs, w.cols);
        require(x.rows % w.count == 0,
                "q: expected a multiple of " + std::to_string(w.count) + " rows, got " + shape_text(q));
        const int64_t tokens = x.rows / w.count;
        require_shape(out, {tokens, w.count, w.rows}, "out");
        if (tokens == 0) return;
        nb::gil_scoped_release release;
        linear_heads({w.packed(), x, out.data(), tokens, w.count});
      },
      nb::arg("q").noconvert(), nb::arg("scales").noconvert(), nb::arg("pairs").noconvert(),
      nb::arg("matrix"), nb::arg("out").noconvert());
}

}  // namespace mn
