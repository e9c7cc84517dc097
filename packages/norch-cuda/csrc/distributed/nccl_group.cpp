#include "distributed/nccl_group.h"

#include <chrono>
#include <string>
#include <thread>

namespace norch::distributed {
namespace {

constexpr auto LOOK = std::chrono::milliseconds(100);  // between two looks of the threads that watch

/// Notes every now and then whether work ends.
void look(std::shared_ptr<Group> group) {
    Group& g = *group;
    while (g.comm) {
        std::this_thread::sleep_for(LOOK);
        std::unique_lock lock(g.progress);
        if (!g.since) continue;
        const int64_t started = g.started;
        cudaEvent_t last = g.last, earlier = g.wants_earlier ? nullptr : g.earlier;
        lock.unlock();
        bind(g.stream->device);
        const bool is_idle = cudaEventQuery(last) == cudaSuccess;
        const bool has_moved = earlier && cudaEventQuery(earlier) == cudaSuccess;
        lock.lock();
        if (is_idle && g.started == started)
            g.since = 0;
        else if (has_moved || is_idle)
            g.since = now();
        if (has_moved) g.wants_earlier = true;
    }
}

/// Aborts a group of whose work none ends for `limit` seconds. It asks nothing of CUDA, where every call waits, `look`'s
/// too, while a launch does since the queue is full behind a collective that hangs; nor does it need the GIL.
void guard(std::shared_ptr<Group> group, double limit) {
    while (group->comm) {
        std::this_thread::sleep_for(LOOK);
        std::unique_lock lock(group->progress);
        const bool is_late = group->since && double(now() - group->since) * 1e-9 > limit;
        lock.unlock();
        if (is_late) group->abort(true);
    }
}

}  // namespace

int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

cudaEvent_t make_event() {
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    return event;
}

void Group::abort(bool is_under_way) {
    is_aborted = true;
    Comm ended = comm.exchange(nullptr);
    if (!ended) return;
    if (is_under_way)
        set_failure(stream->device, "collectives that were under way on cuda:" + std::to_string(stream->device) +
                                        " were given up, and what they were to write is not there; the next "
                                        "collective of their group says why");
    nccl().comm_abort(ended);
}

Result Group::settle(Comm of, Result result) const {
    while (result == IN_PROGRESS && !is_aborted) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        if (Result asked = nccl().comm_get_async_error(of, &result); asked != SUCCESS) return asked;
    }
    return result;
}

void watch(const std::shared_ptr<Group>& group, double limit) {
    std::thread(look, group).detach();
    std::thread(guard, group, limit).detach();
}

}  // namespace norch::distributed
