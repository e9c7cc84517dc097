// Results of other streams' work for which a stream waits when it first uses them, and not before.
#pragma once

#include <memory>
#include <vector>

#include "runtime/runtime.h"

namespace norch {

struct Buffer;

/// Work of `writer` that is done at `done` and writes `buffers` (which are kept), for which `reader` is to wait.
struct LateWork {
    std::vector<Buffer*> buffers;
    Stream *reader, *writer;
    cudaEvent_t done;
    std::shared_ptr<void> owner;  // of `done`
};

/// Whether there is any. As all here it is under the GIL.
extern bool has_late_work;

void add_late_work(LateWork work);
/// Has `stream`, which is about to use a buffer, and the reader wait for the work that writes it, if there is such.
void await_late_work(const Buffer* buffer, Stream& stream);
/// Has all readers wait. Whatever orders streams, or shows memory to others, begins with this.
void settle_all_late_work();

inline void settle_late_work() {
    if (has_late_work) settle_all_late_work();
}

}  // namespace norch
