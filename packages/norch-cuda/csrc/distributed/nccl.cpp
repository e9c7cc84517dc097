// Collectives by NCCL, which is opened when it is first asked for.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "distributed/nccl_group.h"
#include "runtime/bindings.h"
#include "runtime/late.h"

namespace nb = nanobind;

namespace norch::distributed {
namespace {

constexpr int BYTES = 1;  // ncclUint8, as which whatever is only moved travels

using Buffers = std::vector<Buffer*>;

Py_ssize_t itemsize(int type) {
    constexpr Py_ssize_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};  // ncclInt8 to ncclBfloat16
    if (type < 0 || type > 9) throw nb::value_error("NCCL has no such type");
    return sizes[type];
}

/// A collective that was started: the event after it, and the buffers that it uses.
class Work {
public:
    Work(std::shared_ptr<Group> group, Buffers buffers, bool is_captured)
        : group_(std::move(group)),
          buffers_(std::move(buffers)),
          done_(std::make_shared<Done>(group_, is_captured)),
          is_captured_(is_captured) {
        for (Buffer* buffer : buffers_) Py_INCREF(reinterpret_cast<PyObject*>(buffer));
    }
    ~Work() { release(nullptr); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

    cudaEvent_t done() const { return done_->event; }
    bool is_captured() const { return is_captured_; }

    bool test() {
        group_->refuse_aborted();
        if (is_captured_ || is_done_) return true;  // a recorded one runs when its graph does
        bind(group_->stream->device);
        cudaError_t answer = cudaEventQuery(done());
        if (answer == cudaSuccess) {
            is_done_ = true;
            release(nullptr);
            return true;
        }
        if (answer != cudaErrorNotReady) check(answer, "asking for a collective");
        cudaGetLastError();
        Comm comm = group_->comm;
        Result result = SUCCESS;
        if (comm) check_nccl(nccl().comm_get_async_error(comm, &result), "to say what failed", comm);
        if (result != IN_PROGRESS) check_nccl(result, "in a collective", comm);
        return false;
    }

    /// The current stream waits, and not the host.
    void chain() {
        group_->refuse_aborted();
        Stream& stream = current_stream(group_->stream->device);
        if (is_done_ || (is_captured_ && !is_recorded(stream))) return;
        bind(stream.device);
        check(cudaStreamWaitEvent(stream.handle, done(), 0), "waiting for a collective");
        release(&stream);
    }

    /// As `chain`, once the buffers are used.
    void chain_late() {
        group_->refuse_aborted();
        Stream& stream = current_stream(group_->stream->device);
        if (is_done_ || is_captured_ || is_recorded(stream)) return chain();
        add_late_work({std::move(buffers_), &stream, group_->stream, done(), done_});
        buffers_.clear();
    }

private:
    /// The memory of buffers whose own stream is not `after`, which comes after this, must not be reused before this.
    void release(Stream* after) {
        for (Buffer* buffer : buffers_) {
            if (!is_done_ && &home_stream(buffer) != after) note_use(buffer, *group_->stream);
            Py_DECREF(reinterpret_cast<PyObject*>(buffer));
        }
        buffers_.clear();
    }

    std::shared_ptr<Group> group_;
    Buffers buffers_;
    std::shared_ptr<Done> done_;
    const bool is_captured_;
    bool is_done_ = false;
};

std::vector<Stream*>& idle_streams(int device) {
    static std::vector<std::vector<Stream*>> all;
    if (all.size() <= size_t(device)) all.resize(size_t(device) + 1);
    return all[size_t(device)];
}

/// Streams live until the process ends, so those of closed groups are used again.
Stream& take_stream(int device) {
    auto& idle = idle_streams(device);
    if (!idle.empty()) {
        Stream& found = *idle.back();
        idle.pop_back();
        return found;
    }
    int lowest = 0, highest = 0;
    bind(device);
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities");
    return make_stream(device, highest);
}

/// One of the processes that exchange tensors, with a stream of its own. Every call returns before its work is done.
class Communicator {
public:
    /// Waits for the other members. Work that takes over `limit` seconds is aborted.
    Communicator(int device, int size, int rank, nb::bytes id, double limit) {
        UniqueId unique;
        if (id.size() != sizeof unique) throw nb::value_error("an identifier of NCCL's has 128 bytes");
        std::memcpy(unique.bytes, id.data(), sizeof unique);
        nccl();
        group_->stream = &take_stream(device);
        bind(device);
        group_->before = make_event();
        group_->earlier = make_event();
        nb::gil_scoped_release released;
        Comm comm = nullptr;
        Result result = nccl().comm_init_rank(&comm, size, unique, rank);
        result = group_->settle(comm, result);
        check_nccl(result, "to make a group", comm);
        group_->comm = comm;
        watch(group_, limit);
    }

    Work* all_reduce(nb::handle buffer, Py_ssize_t offset, Py_ssize_t count, int type, int op) {
        Buffers used;
        char* data = add(used, buffer, offset, count, type);
        return start(used, "in all_reduce", [=](Comm comm, cudaStream_t stream) {
            return nccl().all_reduce(data, data, size_t(count), type, op, comm, stream);
        });
    }

    /// Each of a list of (buffer, offset, count), in one launch.
    Work* all_reduce_together(nb::list tensors, int type, int op) {
        Buffers used;
        std::vector<std::pair<char*, size_t>> parts;
        for (nb::handle item : tensors) {
            auto tuple = nb::cast<nb::tuple>(item);
            const auto count = nb::cast<Py_ssize_t>(tuple[2]);
            parts.emplace_back(add(used, tuple[0], nb::cast<Py_ssize_t>(tuple[1]), count, type), size_t(count));
        }
        return start(used, "in all_reduce", [&](Comm comm, cudaStream_t stream) {
            Result result = nccl().group_start();
            for (auto [data, count] : parts)
                if (result == SUCCESS) result = nccl().all_reduce(data, data, count, type, op, comm, stream);
            Result ended = nccl().group_end();
            return result == SUCCESS ? ended : result;
        });
    }

    Work* reduce(nb::handle buffer, Py_ssize_t offset, Py_ssize_t count, int type, int op, int root) {
        Buffers used;
        char* data = add(used, buffer, offset, count, type);
        return start(used, "in reduce", [=](Comm comm, cudaStream_t stream) {
            return nccl().reduce(data, data, size_t(count), type, op, root, comm, stream);
        });
    }

    Work* broadcast(nb::handle buffer, Py_ssize_t offset, Py_ssize_t nbytes, int root) {
        Buffers used;
        char* data = add(used, buffer, offset, nbytes, BYTES);
        return start(used, "in broadcast", [=](Comm comm, cudaStream_t stream) {
            return nccl().broadcast(data, data, size_t(nbytes), BYTES, root, comm, stream);
        });
    }

    Work* all_gather(nb::handle out, Py_ssize_t out_offset, nb::handle buffer, Py_ssize_t offset, Py_ssize_t nbytes,
                     int size) {
        Buffers used;
        char* to = add(used, out, out_offset, nbytes * size, BYTES);
        const char* from = add(used, buffer, offset, nbytes, BYTES);
        return start(used, "in all_gather", [=](Comm comm, cudaStream_t stream) {
            return nccl().all_gather(from, to, size_t(nbytes), BYTES, comm, stream);
        });
    }

    Work* reduce_scatter(nb::handle out, Py_ssize_t out_offset, nb::handle buffer, Py_ssize_t offset, Py_ssize_t count,
                         int size, int type, int op) {
        Buffers used;
        char* to = add(used, out, out_offset, count, type);
        const char* from = add(used, buffer, offset, count * size, type);
        return start(used, "in reduce_scatter", [=](Comm comm, cudaStream_t stream) {
            return nccl().reduce_scatter(from, to, size_t(count), type, op, comm, stream);
        });
    }

    /// Both lists hold (buffer, offset, nbytes, peer).
    Work* exchange(nb::list sends, nb::list receipts) {
        struct Transfer {
            char* data;
            size_t nbytes;
            int peer;
        };
        Buffers used;
        auto read = [&](const nb::list& list) {
            std::vector<Transfer> out;
            for (nb::handle item : list) {
                auto tuple = nb::cast<nb::tuple>(item);
                const auto nbytes = nb::cast<Py_ssize_t>(tuple[2]);
                out.push_back({add(used, tuple[0], nb::cast<Py_ssize_t>(tuple[1]), nbytes, BYTES), size_t(nbytes),
                               nb::cast<int>(tuple[3])});
            }
            return out;
        };
        const std::vector<Transfer> out = read(sends), in = read(receipts);
        return start(used, "in exchange", [&](Comm comm, cudaStream_t stream) {
            Result result = nccl().group_start();
            for (const Transfer& t : out)
                if (result == SUCCESS) result = nccl().send(t.data, t.nbytes, BYTES, t.peer, comm, stream);
            for (const Transfer& t : in)
                if (result == SUCCESS) result = nccl().receive(t.data, t.nbytes, BYTES, t.peer, comm, stream);
            Result ended = nccl().group_end();
            return result == SUCCESS ? ended : result;
        });
    }

    void abort() {
        nb::gil_scoped_release released;
        const Stream& own = *group_->stream;
        bind(own.device);
        group_->abort(cudaStreamQuery(own.handle) == cudaErrorNotReady);
    }

    /// Seconds that the call has taken which another thread is in; 0 where none is.
    double blocked() const {
        const int64_t since = group_->called;
        return since ? double(now() - since) * 1e-9 : 0.0;
    }

    /// Waits for the other members.
    void close() {
        Comm comm = group_->comm.exchange(nullptr);
        if (!comm) return;
        {
            nb::gil_scoped_release released;
            bind(group_->stream->device);
            Result result = group_->settle(comm, nccl().comm_finalize(comm));
            check_nccl(result, "to end a group", comm);
            check_nccl(nccl().comm_destroy(comm), "to free a group");
        }
        idle_streams(group_->stream->device).push_back(group_->stream);
    }

private:
    /// The address of `count` elements at element `offset`.
    char* add(Buffers& used, nb::handle object, Py_ssize_t offset, Py_ssize_t count, int type) {
        const Py_ssize_t size = itemsize(type);
        Buffer* buffer = range_of(object, offset * size, count * size);
        if (device_of(buffer) != group_->stream->device)
            throw nb::value_error(("the group is on cuda:" + std::to_string(group_->stream->device) + ", a tensor on cuda:" +
                                   std::to_string(device_of(buffer))).c_str());
        used.push_back(buffer);
        return buffer->data + offset * size;
    }

    template <class Call>
    Work* start(Buffers& used, const char* what, Call call) {
        Stream &own = *group_->stream, &stream = current_stream(own.device);
        settle_late_work();
        bind(own.device);
        auto work = std::make_unique<Work>(group_, std::move(used), is_recorded(stream));
        {
            nb::gil_scoped_release released;  // the first call of a kind waits for the other members
            std::lock_guard lock(group_->calls);
            group_->refuse_aborted();
            Comm comm = group_->comm;
            if (!comm) throw std::runtime_error("the group was closed");
            const Called called(*group_);
            check(cudaEventRecord(group_->before, stream.handle), "recording an event");
            check(cudaStreamWaitEvent(own.handle, group_->before, 0), "waiting for an event");
            Result result = group_->settle(comm, call(comm, own.handle));
            group_->refuse_aborted();
            check_nccl(result, what, comm);
            check(cudaEventRecord(work->done(), own.handle), "recording an event");
            if (!work->is_captured()) note(work->done());
        }
        return work.release();
    }

    /// For `look`: that work was started, after which `done` was recorded.
    void note(cudaEvent_t done) {
        Group& g = *group_;
        std::unique_lock lock(g.progress);
        ++g.started;
        g.last = done;
        if (!g.since) g.since = now();
        if (!g.wants_earlier) return;
        lock.unlock();
        check(cudaEventRecord(g.earlier, g.stream->handle), "recording an event");
        lock.lock();
        g.wants_earlier = false;
    }

    std::shared_ptr<Group> group_ = std::make_shared<Group>();
};

}  // namespace

void add_nccl(nb::module_& m) {
    m.def("nccl_version", [] {
        int version = 0;
        check_nccl(nccl().get_version(&version), "to say its version");
        return version;
    });
    m.def("nccl_unique_id", [] {
        UniqueId id;
        check_nccl(nccl().get_unique_id(&id), "to make an identifier");
        return nb::bytes(id.bytes, sizeof id);
    });
    nb::class_<Work>(m, "NcclWork").def("test", &Work::test).def("chain", &Work::chain).def("chain_late", &Work::chain_late);
    constexpr auto owned = nb::rv_policy::take_ownership;
    nb::class_<Communicator>(m, "NcclCommunicator")
        .def(nb::init<int, int, int, nb::bytes, double>(), nb::arg("device"), nb::arg("size"), nb::arg("rank"), nb::arg("id"),
             nb::arg("limit"))
        .def("all_reduce", &Communicator::all_reduce, owned)
        .def("all_reduce_together", &Communicator::all_reduce_together, owned)
        .def("reduce", &Communicator::reduce, owned)
        .def("broadcast", &Communicator::broadcast, owned)
        .def("all_gather", &Communicator::all_gather, owned)
        .def("reduce_scatter", &Communicator::reduce_scatter, owned)
        .def("exchange", &Communicator::exchange, owned)
        .def("abort", &Communicator::abort)
        .def("blocked", &Communicator::blocked)
        .def("close", &Communicator::close);
}

}  // namespace norch::distributed
