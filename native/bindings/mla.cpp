#include "bindings/mla.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.hpp"
#include "core/buffer.hpp"
#include "core/pool.hpp"
#include "kernels/mla_decode.hpp"
#include "kernels/rope.hpp"

namespace mn {
namespace {

struct Array {
  void* data = nullptr;
  std::vector<int64_t> shape;
};

template <class T>
Array writable(nb::handle object, size_t ndim, const char* name, const char* wanted) {
  Out<T> array;
  require(nb::try_cast<Out<T>>(object, array, false) && array.ndim() == ndim,
          std::string(name) + ": expected a writable C-contiguous " + wanted);
  require(reinterpret_cast<uintptr_t>(array.data()) % alignof(T) == 0,
          std::string(name) + ": expected aligned data");
  Array a{array.data(), {}};
  for (size_t i = 0; i < ndim; ++i) a.shape.push_back(static_cast<int64_t>(array.shape(i)));
  return a;
}

Array cache_array(Format format, nb::handle object, size_t ndim, const char* name) {
  const std::string shape = ndim == 2 ? "[C, width]" : "[H, C, width]";
  if (format == Format::fp32) return writable<float>(object, ndim, name, ("float32 " + shape).c_str());
  if (format == Format::int8) return writable<int8_t>(object, ndim, name, ("int8 " + shape).c_str());
  return writable<uint16_t>(object, ndim, name, ("uint16 " + shape + " for " + format_text(format)).c_str());
}

Array scale_array(Format format, nb::handle object, const std::vector<int64_t>& shape, const char* name) {
  if (format != Format::int8) {
    require(object.is_none(),
            std::string(name) + ": only int8 has scales; pass None for " + format_text(format));
    return {};
  }
  std::string wanted = "float32 [";
  for (size_t i = 0; i < shape.size(); ++i) wanted += (i ? ", " : "") + std::to_string(shape[i]);
  Array a = writable<float>(object, shape.size(), name, (wanted + "]").c_str());
  require(a.shape == shape, std::string(name) + ": expected " + wanted + "]");
  return a;
}

void require_multiple(int64_t value, int64_t of, const char* name) {
  require(value % of == 0, std::string(name) + ": expected a multiple of " + std::to_string(of) + ", got " +
                               std::to_string(value));
}

LatentKV make_latent(const std::string& name, nb::object latent, nb::object scales, nb::object rope) {
  const Format format = parse_format(name), rope_format = format == Format::int8 ? Format::bf16 : format;
  Array c = cache_array(format, latent, 2, "latent"), r = cache_array(rope_format, rope, 2, "rope");
  const int64_t capacity = c.shape[0], rank = c.shape[1], dims = r.shape[1];
  require(capacity >= 1 && rank >= 16, "latent: expected at least [1, 16]");
  require_multiple(rank, 16, "latent: width");
  require_multiple(dims, 8, "rope: width");
  require(r.shape[0] == capacity, "rope: expected " + std::to_string(capacity) + " rows like latent, got " +
                                      std::to_string(r.shape[0]));
  Array s = scale_array(format, scales, {capacity, (rank + 127) / 128}, "scales");
  return {{format, rope_format, c.data, static_cast<float*>(s.data), r.data, capacity, rank, dims},
          {latent, scales, rope}};
}

ExpandedKV make_expanded(const std::string& name, nb::object k, nb::object v, nb::object k_scales,
                         nb::object v_scales) {
  const Format format = parse_format(name);
  Array ka = cache_array(format, k, 3, "k"), va = cache_array(format, v, 3, "v");
  const int64_t heads = ka.shape[0], capacity = ka.shape[1], k_dims = ka.shape[2], v_dims = va.shape[2];
  require(heads >= 1 && capacity >= 1 && k_dims >= 8 && v_dims >= 8, "k, v: expected at least [1, 1, 8]");
  require(k_dims <= 1040, "k: expected a width of at most 1040, got " + std::to_string(k_dims));
  require_multiple(k_dims, 8, "k: width");
  require_multiple(v_dims, 8, "v: width");
  require(va.shape[0] == heads && va.shape[1] == capacity,
          "v: expected [" + std::to_string(heads) + ", " + std::to_string(capacity) + ", width] like k");
  Array ks = scale_array(format, k_scales, {heads, capacity}, "k_scales");
  Array vs = scale_array(format, v_scales, {heads, capacity}, "v_scales");
  return {{format, ka.data, va.data, static_cast<float*>(ks.data), static_cast<float*>(vs.data), heads,
           capacity, k_dims, v_dims},
          {k, v, k_scales, v_scales}};
}

void require_rows(int64_t start, int64_t tokens, int64_t capacity) {
  require(start >= 0 && start <= capacity && tokens <= capacity - start,
          "start: rows " + std::to_string(start) + " to " + std::to_string(start + tokens) +
              " do not fit a cache of " + std::to_string(capacity));
}

void write_latent(In<float> kv_a, int64_t column, In<float> norm_weight, float eps, double theta,
                  In<int64_t> positions, const LatentKV& kv, int64_t start) {
  const LatentView& view = kv.view;
  require(kv_a.ndim() == 2, "kv_a: expected [T, W], got " + shape_text(kv_a));
  const int64_t tokens = kv_a.shape(0), width = kv_a.shape(1);
  require(column >= 0 && column <= width - view.rank - view.rope_dims,
          "column: expected 0 to " + std::to_string(width - view.rank - view.rope_dims) + ", got " +
              std::to_string(column));
  require_shape(norm_weight, {view.rank}, "norm_weight");
  require_shape(positions, {tokens}, "positions");
  require(theta >= 0, "theta: expected 0 (no rotation) or more, got " + std::to_string(theta));
  require_rows(start, tokens, view.capacity);
  if (tokens == 0) return;
  nb::gil_scoped_release release;
  latent_write(
      {kv_a.data() + column, norm_weight.data(), positions.data(), view, tokens, width, start, eps, theta});
}

void write_expanded(In<float> kv, In<float> k_rope, const ExpandedKV& cache, int64_t start) {
  const ExpandedView& view = cache.view;
  require(k_rope.ndim() == 2, "k_rope: expected [T, Dr], got " + shape_text(k_rope));
  const int64_t tokens = k_rope.shape(0), dims = k_rope.shape(1);
  require(dims <= view.k_dims, "k_rope: expected a width of at most " + std::to_string(view.k_dims) +
                                   ", got " + std::to_string(dims));
  require_shape(kv, {tokens, view.heads * (view.k_dims - dims + view.v_dims)}, "kv");
  require_rows(start, tokens, view.capacity);
  if (tokens == 0) return;
  nb::gil_scoped_release release;
  expanded_write({kv.data(), k_rope.data(), view, tokens, dims, start});
}

// Checks lengths and returns the prefix sums of the sequences' chunks.
template <class KV>
std::vector<int64_t> chunk_sums(const std::vector<const KV*>& views, const In<int64_t>& lengths,
                                int64_t sequences) {
  require(static_cast<int64_t>(views.size()) == sequences,
          "views: expected " + std::to_string(sequences) + ", got " + std::to_string(views.size()));
  require_shape(lengths, {sequences}, "lengths");
  std::vector<int64_t> first(static_cast<size_t>(sequences) + 1, 0);
  for (int64_t s = 0; s < sequences; ++s) {
    require(views[s] != nullptr, "views: expected cache views, got None");
    const int64_t n = lengths.data()[s], capacity = views[s]->view.capacity;
    require(n >= 1 && n <= capacity,
            "lengths: expected 1 to " + std::to_string(capacity) + ", got " + std::to_string(n));
    first[s + 1] = first[s] + chunks_of(n);
  }
  return first;
}

thread_local Buffer partials;

nb::tuple decode_latent(In<float> q_latent, In<float> q_rope, const std::vector<const LatentKV*>& kvs,
                        In<int64_t> lengths, float scale, Out<float> out) {
  require(q_latent.ndim() == 3, "q_latent: expected [S, H, R], got " + shape_text(q_latent));
  const int64_t sequences = q_latent.shape(0), heads = q_latent.shape(1), rank = q_latent.shape(2);
  const std::vector<int64_t> first = chunk_sums(kvs, lengths, sequences);
  Stages stages;
  if (sequences == 0 || heads == 0) return stage_seconds(stages);
  const int64_t dims = kvs[0]->view.rope_dims;
  std::vector<LatentView> views;
  for (const LatentKV* kv : kvs) {
    require(kv->view.rank == rank && kv->view.rope_dims == dims,
            "views: expected rank " + std::to_string(rank) + " and " + std::to_string(dims) +
                " rope values, got " + std::to_string(kv->view.rank) + " and " +
                std::to_string(kv->view.rope_dims));
    views.push_back(kv->view);
  }
  require_shape(q_rope, {sequences, heads, dims}, "q_rope");
  require_shape(out, {sequences, heads, rank}, "out");
  DecodeLatentArgs args{
      q_latent.data(), q_rope.data(), views.data(), lengths.data(), first.data(), out.data(), nullptr,
      sequences,       heads,         rank,         dims,           scale,        &stages};
  int64_t bytes = 0;
  decode_latent_scratch({&args, &bytes});
  args.scratch = static_cast<char*>(partials.reserve(bytes));
  {
    nb::gil_scoped_release release;
    mla_decode_latent(args);
  }
  return stage_seconds(stages);
}

nb::tuple decode_expanded(In<float> q, const std::vector<const ExpandedKV*>& kvs, In<int64_t> lengths,
                          float scale, Out<float> out) {
  require(q.ndim() == 3, "q: expected [S, H, Dk], got " + shape_text(q));
  const int64_t sequences = q.shape(0), heads = q.shape(1), k_dims = q.shape(2);
  const std::vector<int64_t> first = chunk_sums(kvs, lengths, sequences);
  Stages stages;
  if (sequences == 0) return stage_seconds(stages);
  const int64_t v_dims = kvs[0]->view.v_dims;
  std::vector<ExpandedView> views;
  for (const ExpandedKV* kv : kvs) {
    const ExpandedView& v = kv->view;
    require(v.heads == heads && v.k_dims == k_dims && v.v_dims == v_dims,
            "views: expected [H, Dk, Dv] of [" + std::to_string(heads) + ", " + std::to_string(k_dims) +
                ", " + std::to_string(v_dims) + "], got [" + std::to_string(v.heads) + ", " +
                std::to_string(v.k_dims) + ", " + std::to_string(v.v_dims) + "]");
    views.push_back(v);
  }
  require_shape(out, {sequences, heads, v_dims}, "out");
  void* scratch = partials.reserve(first.back() * heads * (v_dims + 2) * 4);
  {
    nb::gil_scoped_release release;
    mla_decode_expanded({q.data(), views.data(), lengths.data(), first.data(), out.data(),
                         static_cast<float*>(scratch), sequences, heads, k_dims, v_dims, scale, &stages});
  }
  return stage_seconds(stages);
}

void rotate(Out<float> x, In<int64_t> positions, int64_t rope_dims, double theta) {
  require(x.ndim() == 3, "x: expected [T, heads, width], got " + shape_text(x));
  const int64_t tokens = x.shape(0), heads = x.shape(1), width = x.shape(2);
  require(rope_dims >= 0 && rope_dims % 2 == 0 && rope_dims <= width,
          "rope_dims: expected an even number up to " + std::to_string(width) + ", got " +
              std::to_string(rope_dims));
  require(theta >= 0, "theta: expected 0 (no rotation) or more, got " + std::to_string(theta));
  require_shape(positions, {tokens}, "positions");
  if (rope_dims == 0 || theta == 0) return;
  nb::gil_scoped_release release;
  rope_inplace({x.data(), positions.data(), tokens, heads, width, rope_dims, theta});
}

}  // namespace

Format parse_format(const std::string& name) {
  if (name == "fp32") return Format::fp32;
  if (name == "bf16") return Format::bf16;
  if (name == "fp16") return Format::fp16;
  require(name == "int8", "format: expected fp32, bf16, fp16 or int8, got '" + name + "'");
  return Format::int8;
}

const char* format_text(Format format) {
  switch (format) {
    case Format::fp32:
      return "fp32";
    case Format::bf16:
      return "bf16";
    case Format::fp16:
      return "fp16";
    default:
      return "int8";
  }
}

nb::tuple stage_seconds(const Stages& stages) {
  const double share = 1e-9 / pool_size();
  return nb::make_tuple(static_cast<double>(stages.pack) * share, static_cast<double>(stages.matmul) * share,
                        static_cast<double>(stages.softmax) * share);
}

void bind_mla(nb::module_& m) {
  nb::class_<LatentKV>(m, "LatentKV", "One layer's latent cache of a sequence; keeps its arrays alive.")
      .def(
          "__init__",
          [](LatentKV* self, const std::string& format, nb::object latent, nb::object scales,
             nb::object rope) { new (self) LatentKV(make_latent(format, latent, scales, rope)); },
          nb::arg("format"), nb::arg("latent"), nb::arg("scales").none(), nb::arg("rope"),
          "latent [C, R], scales float32 [C, ceil(R/128)] (int8) or None, rope [C, Dr].")
      .def_prop_ro("format", [](const LatentKV& s) { return std::string(format_text(s.view.format)); })
      .def_prop_ro("capacity", [](const LatentKV& s) { return s.view.capacity; });
  nb::class_<ExpandedKV>(m, "ExpandedKV", "One layer's expanded cache of a sequence; keeps its arrays alive.")
      .def(
          "__init__",
          [](ExpandedKV* self, const std::string& format, nb::object k, nb::object v, nb::object k_scales,
             nb::object v_scales) { new (self) ExpandedKV(make_expanded(format, k, v, k_scales, v_scales)); },
          nb::arg("format"), nb::arg("k"), nb::arg("v"), nb::arg("k_scales").none() = nb::none(),
          nb::arg("v_scales").none() = nb::none(),
          "k [H, C, Dk], v [H, C, Dv], scales float32 [H, C] (int8).")
      .def_prop_ro("format", [](const ExpandedKV& s) { return std::string(format_text(s.view.format)); })
      .def_prop_ro("capacity", [](const ExpandedKV& s) { return s.view.capacity; });
  m.def("rope_inplace", &rotate, nb::arg("x").noconvert(), nb::arg("positions").noconvert(),
        nb::arg("rope_dims"), nb::arg("theta"),
        "Rotates adjacent pairs of the last rope_dims of each head; theta 0 leaves them.");
  m.def("latent_write", &write_latent, nb::arg("kv_a").noconvert(), nb::arg("column"),
        nb::arg("norm_weight").noconvert(), nb::arg("eps"), nb::arg("theta"),
        nb::arg("positions").noconvert(), nb::arg("view"), nb::arg("start"),
        "kv_a[:, column:] = R latent values, Dr rope values -> rows start.. of the view.");
  m.def("expanded_write", &write_expanded, nb::arg("kv").noconvert(), nb::arg("k_rope").noconvert(),
        nb::arg("view"), nb::arg("start"),
        "kv [T, H*Dn + H*Dv] (K part first), rotated k_rope [T, Dr] -> rows start.. of the view.");
  m.def("mla_decode_latent", &decode_latent, nb::arg("q_latent").noconvert(), nb::arg("q_rope").noconvert(),
        nb::arg("views"), nb::arg("lengths").noconvert(), nb::arg("scale"), nb::arg("out").noconvert(),
        "out [S, H, R] = softmax(scale (q_latent . c + q_rope . k_rope)) c. Returns seconds (pack, matmul, "
        "softmax).");
  m.def("mla_decode_expanded", &decode_expanded, nb::arg("q").noconvert(), nb::arg("views"),
        nb::arg("lengths").noconvert(), nb::arg("scale"), nb::arg("out").noconvert(),
        "out [S, H, Dv] = softmax(scale q . k) v. Returns seconds (pack, matmul, softmax).");
  bind_history(m);
}

}  // namespace mn
