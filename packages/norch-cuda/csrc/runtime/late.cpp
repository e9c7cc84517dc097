#include "runtime/late.h"

#include <algorithm>

#include "common/buffer.h"

namespace norch {
namespace {

std::vector<LateWork>& all() {
    static auto* instance = new std::vector<LateWork>;  // never destroyed: Python may be gone by then
    return *instance;
}

void wait(Stream& stream, cudaEvent_t done) {
    bind(stream.device);
    cudaStreamWaitEvent(stream.handle, done, 0);  // its error stays, and is raised by the next call
}

/// Takes the work out of the list, and has its reader wait.
void settle(size_t at) {
    LateWork work = std::move(all()[at]);
    all().erase(all().begin() + std::ptrdiff_t(at));
    has_late_work = !all().empty();
    for (Buffer* buffer : work.buffers)
        if (&home_stream(buffer) != work.reader) note_use(buffer, *work.writer);
    wait(*work.reader, work.done);
    for (Buffer* buffer : work.buffers) Py_DECREF(reinterpret_cast<PyObject*>(buffer));
}

}  // namespace

bool has_late_work = false;

void add_late_work(LateWork work) {
    all().push_back(std::move(work));
    has_late_work = true;
}

void await_late_work(const Buffer* buffer, Stream& stream) {
    for (size_t i = all().size(); i-- > 0;) {
        const LateWork& work = all()[i];
        if (std::find(work.buffers.begin(), work.buffers.end(), buffer) == work.buffers.end()) continue;
        if (&stream != work.reader) wait(stream, work.done);
        settle(i);
    }
}

void settle_all_late_work() {
    while (has_late_work) settle(0);
}

}  // namespace norch
