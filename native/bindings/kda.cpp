#include "kernels/kda.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/bindings.hpp"
#include "kernels/router.hpp"

namespace mn {
namespace {

void require_slots(const In<int32_t>& slots, int64_t count, int64_t rows) {
  require(slots.ndim() == 1 && slots.shape(0) > 0 && rows % static_cast<int64_t>(slots.shape(0)) == 0,
          "slots: expected [sequences] dividing " + std::to_string(rows) + " rows, got " + shape_text(slots));
  for (size_t i = 0; i < slots.shape(0); ++i) {
    int32_t slot = slots.data()[i];
    require(slot >= 0 && slot < count,
            "slots: " + std::to_string(slot) + " is outside 0.." + std::to_string(count - 1));
    for (size_t j = 0; j < i; ++j)
      require(slots.data()[j] != slot, "slots: " + std::to_string(slot) + " twice");
  }
}

void require_columns(int64_t column, int64_t width, int64_t total, const char* name) {
  require(column >= 0 && column + width <= total, std::string(name) + ": columns " + std::to_string(column) +
                                                      ".." + std::to_string(column + width) + " of " +
                                                      std::to_string(total));
}

}  // namespace

void bind_kda(nb::module_& m) {
  m.def(
      "kda_prepare",
      [](In<float> y, std::tuple<int64_t, int64_t, int64_t, int64_t> columns, In<float> forget, In<float> b,
         In<float> conv, Out<float> conv_states, In<int32_t> slots, In<float> a_log, In<float> dt_bias,
         const std::string& gate, float lower_bound, Out<float> q, Out<float> k, Out<float> v,
         Out<float> decay, Out<float> beta) {
        require(y.ndim() == 2 && b.ndim() == 2 && forget.ndim() == 2 && conv_states.ndim() == 3,
                "kda_prepare: expected y, forget, b [rows, width] and conv_states [slots, 3, channels]");
        int64_t rows = y.shape(0), heads = b.shape(1), width = dt_bias.size(),
                dim = heads ? width / heads : 0;
        require(heads > 0 && dim > 0 && dim * heads == width && dim % 8 == 0,
                "dt_bias: expected heads * a multiple of 8, got " + std::to_string(width) + " for " +
                    std::to_string(heads) + " heads");
        require(gate == "sigmoid" || gate == "softplus", "gate: expected sigmoid or softplus, got " + gate);
        require_shape(conv, {3, 4, width}, "conv");
        require_shape(conv_states, {static_cast<int64_t>(conv_states.shape(0)), 3, 3 * width}, "conv_states");
        require_slots(slots, conv_states.shape(0), rows);
        require_shape(b, {rows, heads}, "b");
        require_shape(a_log, {heads}, "A_log");
        auto [cq, ck, cv, cf] = columns;
        for (int64_t c : {cq, ck, cv}) require_columns(c, width, y.shape(1), "y");
        require_columns(cf, width, forget.shape(1), "forget");
        require(static_cast<int64_t>(forget.shape(0)) == rows, "forget: expected as many rows as y");
        for (auto* out : {&q, &k, &v, &decay}) require_shape(*out, {rows, width}, "q, k, v, decay");
        require_shape(beta, {rows, heads}, "beta");
        nb::gil_scoped_release release;
        kda_prepare({y.data(),
                     {cq, ck, cv},
                     forget.data(),
                     cf,
                     b.data(),
                     conv.data(),
                     conv_states.data(),
                     slots.data(),
                     a_log.data(),
                     dt_bias.data(),
                     gate == "sigmoid" ? ForgetGate::sigmoid : ForgetGate::softplus,
                     lower_bound,
                     q.data(),
                     k.data(),
                     v.data(),
                     decay.data(),
                     beta.data(),
                     rows,
                     static_cast<int64_t>(slots.shape(0)),
                     heads,
                     dim,
                     static_cast<int64_t>(y.shape(1)),
                     static_cast<int64_t>(forget.shape(1))});
      },
      nb::arg("y").noconvert(), nb::arg("columns"), nb::arg("forget").noconvert(), nb::arg("b").noconvert(),
      nb::arg("conv").noconvert(), nb::arg("conv_states").noconvert(), nb::arg("slots").noconvert(),
      nb::arg("a_log").noconvert(), nb::arg("dt_bias").noconvert(), nb::arg("gate"), nb::arg("lower_bound"),
      nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
      nb::arg("decay").noconvert(), nb::arg("beta").noconvert());
  m.def(
      "kda_recurrence",
      [](In<float> q, In<float> k, In<float> v, In<float> decay, In<float> beta, Out<float> states,
         In<int32_t> slots, Out<float> out) {
        require(states.ndim() == 4 && states.shape(2) == states.shape(3) && states.shape(2) % 8 == 0,
                "states: expected [slots, heads, K, K] with K a multiple of 8, got " + shape_text(states));
        require(beta.ndim() == 2, "beta: expected [rows, heads], got " + shape_text(beta));
        int64_t rows = beta.shape(0), heads = states.shape(1), dim = states.shape(2);
        require_shape(beta, {rows, heads}, "beta");
        for (auto* in : {&q, &k, &v, &decay}) require_shape(*in, {rows, heads * dim}, "q, k, v, decay");
        require_shape(out, {rows, heads * dim}, "out");
        require_slots(slots, states.shape(0), rows);
        nb::gil_scoped_release release;
        kda_recurrence({q.data(), k.data(), v.data(), decay.data(), beta.data(), states.data(), slots.data(),
                        out.data(), rows, static_cast<int64_t>(slots.shape(0)), heads, dim});
      },
      nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
      nb::arg("decay").noconvert(), nb::arg("beta").noconvert(), nb::arg("states").noconvert(),
      nb::arg("slots").noconvert(), nb::arg("out").noconvert());
  m.def(
      "kda_output",
      [](In<float> o, In<float> gate, int64_t column, In<float> weight, float eps, Out<float> y) {
        require(o.ndim() == 2 && gate.ndim() == 2 && weight.ndim() == 1,
                "kda_output: expected o, gate [rows, width], weight [dim]");
        int64_t rows = o.shape(0), width = o.shape(1), dim = weight.shape(0);
        require(dim > 0 && width % dim == 0,
                "o: expected a width that " + std::to_string(dim) + " divides, got " + shape_text(o));
        require(static_cast<int64_t>(gate.shape(0)) == rows, "gate: expected as many rows as o");
        require_columns(column, width, gate.shape(1), "gate");
        require_shape(y, {rows, width}, "y");
        nb::gil_scoped_release release;
        kda_output({o.data(), gate.data(), column, weight.data(), y.data(), rows, width / dim, dim,
                    static_cast<int64_t>(gate.shape(1)), eps});
      },
      nb::arg("o").noconvert(), nb::arg("gate").noconvert(), nb::arg("column"), nb::arg("weight").noconvert(),
      nb::arg("eps"), nb::arg("y").noconvert());
  m.def(
      "route",
      [](In<float> logits, In<float> bias, int64_t groups, int64_t topk_group, int64_t top_k, bool norm_topk,
         float scale, const std::string& score, Out<int32_t> ids, Out<float> weights) {
        require(logits.ndim() == 2, "logits: expected [rows, experts], got " + shape_text(logits));
        int64_t rows = logits.shape(0), experts = logits.shape(1);
        require(groups > 0 && experts % groups == 0 && topk_group > 0 && topk_group <= groups && top_k > 0 &&
                    top_k <= experts / groups * topk_group,
                "route: " + std::to_string(top_k) + " of " + std::to_string(experts) + " experts in " +
                    std::to_string(topk_group) + " of " + std::to_string(groups) + " groups is not possible");
        require(score == "sigmoid" || score == "softmax", "score: expected sigmoid or softmax, got " + score);
        require_shape(bias, {experts}, "bias");
        require_shape(ids, {rows, top_k}, "ids");
        require_shape(weights, {rows, top_k}, "weights");
        nb::gil_scoped_release release;
        route({logits.data(), bias.data(), ids.data(), weights.data(), rows, experts, groups, topk_group,
               top_k, norm_topk, scale, score == "sigmoid" ? Score::sigmoid : Score::softmax});
      },
      nb::arg("logits").noconvert(), nb::arg("bias").noconvert(), nb::arg("n_group"), nb::arg("topk_group"),
      nb::arg("top_k"), nb::arg("norm_topk"), nb::arg("scale"), nb::arg("score"), nb::arg("ids").noconvert(),
      nb::arg("weights").noconvert());
}

}  // namespace mn
