// What the collectives of a group share, and the threads that see whether they end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "distributed/nccl_functions.h"
#include "runtime/runtime.h"

namespace norch::distributed {

/// Nanoseconds of a clock that only goes on.
int64_t now();

cudaEvent_t make_event();

/// What a group and the work that it started share.
struct Group {
    std::atomic<Comm> comm = nullptr;
    std::atomic<bool> is_aborted = false;
    Stream* stream = nullptr;
    cudaEvent_t before = nullptr;   // in the stream that a call comes from
    std::vector<cudaEvent_t> idle;  // events that no work uses; under the GIL
    std::mutex calls;               // NCCL takes one call of a group at a time
    std::atomic<int64_t> called = 0;  // when the call under way began

    // What `look` and `guard` share: how many calls there were, the event after the last of them, one after an earlier
    // one, and when work was last seen to end; 0 where none is under way.
    std::mutex progress;
    int64_t started = 0, since = 0;
    cudaEvent_t last = nullptr, earlier = nullptr;
    bool wants_earlier = true;

    Group() = default;
    Group(const Group&) = delete;
    ~Group() {
        for (cudaEvent_t event : idle) cudaEventDestroy(event);
        for (cudaEvent_t event : {before, earlier})
            if (event) cudaEventDestroy(event);
    }

    /// Ends what is under way, also a call that another thread is in. The next synchronisation says so.
    void abort(bool is_under_way);

    void refuse_aborted() const {
        if (is_aborted) throw std::runtime_error("the group was aborted");
    }

    /// Waits where NCCL_COMM_BLOCKING=0 made calls return before their work is in the stream.
    Result settle(Comm of, Result result) const;
};

/// Starts the threads that abort a group of whose work none ends for `limit` seconds.
void watch(const std::shared_ptr<Group>& group, double limit);

/// Notes for other threads that a call is under way.
class Called {
public:
    explicit Called(Group& group) : group_(group) { group_.called = now(); }
    ~Called() { group_.called = 0; }

private:
    Group& group_;
};

/// An event of a group's, which goes back to the idle ones; under the GIL.
class Done {
public:
    /// A recorded one is new: others' must stay such as can be asked for.
    Done(std::shared_ptr<Group> group, bool is_recorded) : group_(std::move(group)) {
        auto& idle = group_->idle;
        if (idle.empty() || is_recorded) idle.push_back(make_event());
        event = idle.back();
        idle.pop_back();
    }
    ~Done() { group_->idle.push_back(event); }
    Done(const Done&) = delete;
    Done& operator=(const Done&) = delete;

    cudaEvent_t event;

private:
    std::shared_ptr<Group> group_;
};

}  // namespace norch::distributed
