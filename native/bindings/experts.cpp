#include "kernels/experts.hpp"

#include "bindings/bindings.hpp"
#include "bindings/matrix.hpp"

namespace mn {
namespace {

Routes make_routes(const In<int32_t>& ids, const In<float>& weights, int64_t tokens, int64_t experts) {
  require(ids.ndim() == 2 && static_cast<int64_t>(ids.shape(0)) == tokens && ids.shape(1) >= 1,
          "ids: expected [" + std::to_string(tokens) + ", k], got " + shape_text(ids));
  const int64_t slots = ids.shape(1);
  require_shape(weights, {tokens, slots}, "weights");
  require(tokens * slots < (int64_t{1} << 31),
          "ids: expected fewer than 2^31 entries, got " + shape_text(ids));
  for (int64_t i = 0; i < tokens * slots; ++i)
    require(ids.data()[i] >= 0 && ids.data()[i] < experts,
            "ids: expected 0 to " + std::to_string(experts - 1) + ", got " + std::to_string(ids.data()[i]));
  return {ids.data(), weights.data(), tokens, slots, experts};
}

}  // namespace

void bind_experts(nb::module_& m) {
  m.def(
      "experts_quantized",
      [](In<int8_t> q, In<float> scales, In<int16_t> pairs, In<int32_t> ids, In<float> weights,
         const Matrix& gate_up, const Matrix& down, Out<float> out, bool accumulate) {
        require(gate_up.quantized(), "gate_up: expected W4 or W8, got " + describe(gate_up));
        require(down.quantized(), "down: expected W4 or W8, got " + describe(down));
        require(gate_up.rows == (down.cols + 7) / 8 * 16,
                "gate_up: expected " + std::to_string((down.cols + 7) / 8 * 16) + " rows, twice down's " +
                    std::to_string(down.cols) + " columns rounded up to 8, got " + describe(gate_up));
        require(gate_up.count == down.count, "down: expected " + std::to_string(gate_up.count) +
                                                 " experts like gate_up, got " + describe(down));
        QuantizedRows x = quantized_rows(q, scales, pairs, gate_up.cols);
        require_shape(out, {x.rows, down.rows}, "out");
        Routes routes = make_routes(ids, weights, x.rows, down.count);
        if (x.rows == 0) return;
        nb::gil_scoped_release release;
        experts_quantized({routes, x, gate_up.packed(), down.packed(), out.data(), accumulate});
      },
      nb::arg("q").noconvert(), nb::arg("scales").noconvert(), nb::arg("pairs").noconvert(),
      nb::arg("ids").noconvert(), nb::arg("weights").noconvert(), nb::arg("gate_up"), nb::arg("down"),
      nb::arg("out").noconvert(), nb::arg("accumulate") = false);
  m.def(
      "experts_dense",
      [](In<float> x, In<int32_t> ids, In<float> weights, const Matrix& gate, const Matrix& up,
         const Matrix& down, Out<float> out, bool accumulate) {
        for (const Matrix* w : {&gate, &up, &down})
          require(!w->quantized() && w->format == gate.format && w->count == gate.count,
                  "experts: expected dense matrices of one type and count, got " + describe(gate) + ", " +
                      describe(up) + " and " + describe(down));
        require(up.rows == gate.rows && up.cols == gate.cols && down.cols == gate.rows,
                "experts: expected gate and up [I, H] and down [W, I], got " + describe(gate) + ", " +
                    describe(up) + " and " + describe(down));
        require(x.ndim() == 2 && static_cast<int64_t>(x.shape(1)) == gate.cols,
                "x: expected [T, " + std::to_string(gate.cols) + "], got " + shape_text(x));
        const int64_t tokens = x.shape(0);
        require_shape(out, {tokens, down.rows}, "out");
        Routes routes = make_routes(ids, weights, tokens, down.count);
        if (tokens == 0) return;
        nb::gil_scoped_release release;
        experts_dense({routes, x.data(), gate.dense_type(), gate.data.data(), up.data.data(),
                       down.data.data(), gate.cols, gate.rows, down.rows, out.data(), accumulate});
      },
      nb::arg("x").noconvert(), nb::arg("ids").noconvert(), nb::arg("weights").noconvert(), nb::arg("gate"),
      nb::arg("up"), nb::arg("down"), nb::arg("out").noconvert(), nb::arg("accumulate") = false);
}

}  // namespace mn
