// The one thread pool of the process: short bounded spin, then sleep.
#pragma once
#include <cstdint>
#include <vector>

namespace mn {

// Runs body(task, worker) once for every task in [0, tasks). Tasks are claimed one by one, so a worker
// that loses its core delays the others by one task at most. `worker` is below pool_size() and no two
// running tasks share it: use it to index per-thread scratch. Results must not depend on either number.
// Must not be called from inside a task.
void pool_run(int64_t tasks, void (*body)(void* context, int64_t task, int worker), void* context);

template <class Body>
void parallel_for(int64_t tasks, Body&& body) {
  pool_run(
      tasks, [](void* context, int64_t task, int worker) { (*static_cast<Body*>(context))(task, worker); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

int pool_size();

// Joins the old threads, starts threads - 1 new ones. They, and who calls pool_run, keep to these processors;
// to none in particular if there are none. Only Linux does that.
void set_pool_size(int threads, std::vector<int> cpus);
std::vector<int> pool_cpus();

// Scratch of at least `bytes`, 64-byte aligned, kept and reused by each worker between calls. Not zeroed.
void* worker_scratch(int worker, int64_t bytes);
int64_t scratch_bytes();  // held now by all workers together

}  // namespace mn
