// The extension module: what Python sees of the kernels and of the CUDA runtime.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common/module.h"
#include "common/recurrence.h"
#include "cudnn/library.h"
#include "linalg/linalg.h"
#include "matmul/cublaslt.h"
#include "runtime/bindings.h"
#include "runtime/families.h"
#include "runtime/graph.h"
#include "runtime/graph_program.h"
#include "runtime/library.h"
#include "runtime/transfer.h"

namespace nb = nanobind;
using namespace norch;

// Of cuda_profiler_api.h, which NVIDIA's wheels do not have.
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

Buffer* norch::range_of(nb::handle object, Py_ssize_t offset, Py_ssize_t size) {
    if (Py_TYPE(object.ptr()) != buffer_type) throw nb::type_error("expected a norch_cuda.Buffer");
    auto* buffer = reinterpret_cast<Buffer*>(object.ptr());
    if (offset < 0 || size < 0 || offset > buffer->nbytes - size) {
        std::string message = std::to_string(size) + " bytes at " + std::to_string(offset) +
                              " do not lie in a buffer of " + std::to_string(buffer->nbytes);
        throw nb::value_error(message.c_str());
    }
    return buffer;
}

namespace {

/// The bytes of an object that supports the buffer protocol, for as long as this lives.
class HostBytes {
public:
    HostBytes(nb::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
    }
    ~HostBytes() { PyBuffer_Release(&view_); }
    HostBytes(const HostBytes&) = delete;
    HostBytes& operator=(const HostBytes&) = delete;
    char* data() const { return static_cast<char*>(view_.buf); }
    Py_ssize_t size() const { return view_.len; }

private:
    Py_buffer view_;
};

void put(nb::handle buffer, Py_ssize_t offset, nb::handle data) {
    HostBytes bytes(data, PyBUF_SIMPLE);
    copy_in(range_of(buffer, offset, bytes.size()), size_t(offset), bytes.data(), size_t(bytes.size()), data.ptr());
}

void get(nb::handle buffer, Py_ssize_t offset, nb::handle data) {
    HostBytes bytes(data, PyBUF_WRITABLE);
    copy_out(range_of(buffer, offset, bytes.size()), size_t(offset), bytes.data(), size_t(bytes.size()));
}

void get_later(nb::handle buffer, Py_ssize_t offset, nb::handle data) {
    HostBytes bytes(data, PyBUF_WRITABLE);
    copy_out_later(range_of(buffer, offset, bytes.size()), size_t(offset), bytes.data(), size_t(bytes.size()), data.ptr());
}

void copy(nb::handle out, Py_ssize_t out_offset, nb::handle source, Py_ssize_t source_offset, Py_ssize_t nbytes) {
    copy_between(range_of(out, out_offset, nbytes), size_t(out_offset), range_of(source, source_offset, nbytes),
                 size_t(source_offset), size_t(nbytes));
}

nb::dict stats(int device) {
    properties(device);
    MemoryStats s = memory_stats(device);
    nb::dict out;
    out["allocated_bytes"] = s.allocated;
    out["peak_allocated_bytes"] = s.peak_allocated;
    out["reserved_bytes"] = s.reserved;
    out["peak_reserved_bytes"] = s.peak_reserved;
    out["allocations"] = s.allocations;
    out["cuda_allocations"] = s.cuda_allocations;
    out["retries"] = s.retries;
    out["out_of_memory_errors"] = s.failures;
    out["pinned_bytes"] = int64_t(pinned_bytes());
    return out;
}

/// Bytes that CUDA has free on a device, and in all.
nb::tuple mem_get_info(int device) {
    properties(device);
    bind(device);
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    return nb::make_tuple(free, total);
}

/// What else PyTorch tells of a device, by its names.
constexpr std::pair<const char*, cudaDeviceAttr> ATTRIBUTES[] = {
    {"clock_rate", cudaDevAttrClockRate}, {"is_integrated", cudaDevAttrIntegrated},
    {"is_multi_gpu_board", cudaDevAttrIsMultiGpuBoard}, {"max_threads_per_block", cudaDevAttrMaxThreadsPerBlock},
    {"max_threads_per_multi_processor", cudaDevAttrMaxThreadsPerMultiProcessor},
    {"memory_bus_width", cudaDevAttrGlobalMemoryBusWidth}, {"memory_clock_rate", cudaDevAttrMemoryClockRate},
    {"pci_bus_id", cudaDevAttrPciBusId}, {"pci_device_id", cudaDevAttrPciDeviceId},
    {"pci_domain_id", cudaDevAttrPciDomainId}, {"regs_per_multiprocessor", cudaDevAttrMaxRegistersPerMultiprocessor},
    {"shared_memory_per_block", cudaDevAttrMaxSharedMemoryPerBlock},
    {"shared_memory_per_block_optin", cudaDevAttrMaxSharedMemoryPerBlockOptin},
    {"shared_memory_per_multiprocessor", cudaDevAttrMaxSharedMemoryPerMultiprocessor},
    {"warp_size", cudaDevAttrWarpSize}};

nb::dict describe(int device) {
    const DeviceProperties& p = properties(device);
    nb::dict out;
    out["name"] = nb::cast(p.name);
    out["major"] = p.major;
    out["minor"] = p.minor;
    out["multi_processor_count"] = p.multiprocessors;
    out["total_memory"] = p.total_memory;
    out["l2_cache_size"] = p.l2_bytes;
    out["L2_cache_size"] = p.l2_bytes;
    out["uuid"] = nb::cast(p.uuid);
    for (const auto& [name, attribute] : ATTRIBUTES) {
        int value = 0;
        check(cudaDeviceGetAttribute(&value, attribute, device), "asking for a device's properties");
        out[name] = value;
    }
    return out;
}

/// Page-locked host memory as an object with the buffer protocol. A copy that still reads it keeps the object alive.
struct PinnedBytes {
    explicit PinnedBytes(Py_ssize_t nbytes) : data(allocate_pinned(size_t(nbytes))), nbytes(nbytes) {}
    ~PinnedBytes() { release_pinned(data); }
    PinnedBytes(const PinnedBytes&) = delete;
    PinnedBytes& operator=(const PinnedBytes&) = delete;
    char* data;
    Py_ssize_t nbytes;
};

int get_pinned_buffer(PyObject* object, Py_buffer* view, int flags) {
    auto* self = nb::inst_ptr<PinnedBytes>(object);
    return PyBuffer_FillInfo(view, object, self->data, self->nbytes, 0, flags);
}

PyType_Slot pinned_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_pinned_buffer)}, {0, nullptr}};

/// What the answer to a query says.
bool is_done(cudaError_t answer, const char* what) {
    if (answer == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    check(answer, what);
    return true;
}

/// A point in the work of a stream.
class Event {
public:
    explicit Event(bool times) : times_(times) {}
    ~Event() {
        if (event_) cudaEventDestroy(event_);
    }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(Stream* stream) {
        Stream& at = stream ? *stream : current_stream(current_device());
        settle_late_work();
        bind(at.device);
        if (!event_) check(cudaEventCreateWithFlags(&event_, times_ ? 0 : cudaEventDisableTiming), "creating an event");
        check(cudaEventRecord(event_, at.handle), "recording an event");
        device_ = at.device;
    }
    void wait(Stream* stream) {
        if (!event_) return;
        Stream& at = stream ? *stream : current_stream(current_device());
        bind(at.device);
        check(cudaStreamWaitEvent(at.handle, event_, 0), "waiting for an event");
    }
    bool query() {
        if (!event_) return true;
        return is_done(cudaEventQuery(event_), "asking for an event");
    }
    void synchronize() {
        if (!event_) return;
        cudaError_t error;
        {
            nb::gil_scoped_release released;
            error = cudaEventSynchronize(event_);
        }
        check(error, "waiting for an event");
        raise_reported(device_);
    }
    double elapsed_time(Event& end) {
        if (!times_ || !end.times_) throw std::invalid_argument("both events need enable_timing=True");
        if (!event_ || !end.event_) throw std::invalid_argument("both events must have been recorded");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, event_, end.event_), "asking for the time between two events");
        return milliseconds;
    }

private:
    cudaEvent_t event_ = nullptr;
    bool times_;
    int device_ = 0;
};

void add_runtime(nb::module_& m) {
    m.def("unusable_reason", unusable_reason);
    m.def("device_count", device_count);
    m.def("properties", describe, nb::arg("device"));
    m.def("current_device", current_device);
    m.def("set_current_device", set_current_device, nb::arg("device"));
    m.def("synchronize", [](int device) {
        properties(device);
        settle_late_work();
        {
            nb::gil_scoped_release released;
            bind(device);
            cudaDeviceSynchronize();  // its error stays, and is raised by the next call
        }
        synchronize_device(device);
    }, nb::arg("device"));
    m.def("can_access_peer", [](int device, int peer) {
        properties(device);
        properties(peer);
        int found = 0;
        check(cudaDeviceCanAccessPeer(&found, device, peer), "asking for a device's peers");
        return found != 0;
    }, nb::arg("device"), nb::arg("peer"));
    m.def("profile", [](bool starts) { return int(starts ? cudaProfilerStart() : cudaProfilerStop()); });
    m.def("cuda_version", [] {
        int runtime = 0, driver = 0;
        cudaRuntimeGetVersion(&runtime);
        cudaDriverGetVersion(&driver);
        return nb::make_tuple(runtime, driver);
    });

    nb::class_<Stream>(m, "Stream")
        .def_ro("device", &Stream::device)
        .def_ro("is_capturing", &Stream::is_capturing)
        .def_prop_ro("cuda_stream", [](const Stream& s) {
            settle_late_work();
            return uintptr_t(s.handle);
        })
        .def_prop_ro("priority", [](const Stream& s) {
            int priority = 0;
            bind(s.device);
            check(cudaStreamGetPriority(s.handle, &priority), "asking for a stream");
            return priority;
        })
        .def("query", [](Stream& s) {
            settle_late_work();
            bind(s.device);
            return is_done(cudaStreamQuery(s.handle), "asking for a stream");
        })
        .def("synchronize", [](Stream& s) {
            settle_late_work();
            {
                nb::gil_scoped_release released;
                bind(s.device);
                cudaStreamSynchronize(s.handle);
            }
            synchronize_stream(s);
        });
    m.def("priority_range", [] {
        int least = 0, greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams");
        return nb::make_tuple(least, greatest);
    });
    m.def("make_stream", make_stream, nb::arg("device"), nb::arg("priority"), nb::rv_policy::reference);
    m.def("stream_of", [](uintptr_t handle, int device) -> Stream& {
        return stream_of(reinterpret_cast<cudaStream_t>(handle), device);
    }, nb::arg("handle"), nb::arg("device"), nb::rv_policy::reference);
    m.def("default_stream", default_stream, nb::arg("device"), nb::rv_policy::reference);
    m.def("current_stream", current_stream, nb::arg("device"), nb::rv_policy::reference);
    m.def("set_current_stream", set_current_stream, nb::arg("stream"));
    m.def("record_stream", [](nb::handle buffer, Stream& stream) {
        Buffer* used = range_of(buffer, 0, 0);
        if (&stream != &home_stream(used)) note_use(used, stream);
    }, nb::arg("buffer"), nb::arg("stream"));

    m.def("wait_for_handle", [](uintptr_t handle, int device) {
        bind(device);
        cudaEvent_t done;
        check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "creating an event");
        const cudaError_t recorded = cudaEventRecord(done, reinterpret_cast<cudaStream_t>(handle));
        const cudaError_t waited = recorded ? recorded : cudaStreamWaitEvent(current_stream(device).handle, done, 0);
        cudaEventDestroy(done);
        check(waited, "waiting for another library's stream");
    }, nb::arg("handle"), nb::arg("device"), "The current stream of a device waits for a cudaStream_t.");
    m.def("adopt", [](uintptr_t address, Py_ssize_t nbytes, int device, nb::handle owner) {
        return nb::steal(reinterpret_cast<PyObject*>(adopt(reinterpret_cast<char*>(address), nbytes, device, owner.ptr())));
    }, nb::arg("address"), nb::arg("nbytes"), nb::arg("device"), nb::arg("owner"));

    nb::class_<Event>(m, "Event")
        .def("__init__", [](Event* self, bool enable_timing, bool, bool) { new (self) Event(enable_timing); },
             nb::arg("enable_timing") = false, nb::arg("blocking") = false, nb::arg("interprocess") = false)
        .def("record", &Event::record, nb::arg("stream").none() = nb::none())
        .def("wait", &Event::wait, nb::arg("stream").none() = nb::none())
        .def("query", &Event::query)
        .def("synchronize", &Event::synchronize)
        .def("elapsed_time", &Event::elapsed_time, nb::arg("end_event"));

    nb::class_<Graph>(m, "Graph")
        .def(nb::init<>())
        .def("begin", &Graph::begin)
        .def("end", &Graph::end)
        .def("replay", &Graph::replay)
        .def("calls", [](const Graph& graph) {
            nb::list out;
            for (const RecordedCall& call : graph.calls()) {
                nb::list numbers;
                for (int k = 0; k < call.kernel().count; ++k) {
                    const Slot& slot = call.kernel().slots[k];
                    if (!slot.is_scalar) continue;
                    if (slot.is_floating) numbers.append(call.scalars[size_t(k)].f);
                    else numbers.append(uint64_t(call.scalars[size_t(k)].i));
                }
                out.append(nb::make_tuple(*call.kernel().op, nb::tuple(numbers), !call.nodes.empty()));
            }
            return out;
        }, "(op, numbers, whether it can be fed) of each call that gets others in each replay.")
        .def("feed", [](Graph& graph, size_t which, nb::sequence numbers) {
            const RecordedCall& call = graph.calls().at(which);
            std::vector<Scalar> scalars = call.scalars;
            size_t at = 0;
            for (int k = 0; k < call.kernel().count; ++k)
                if (call.kernel().slots[k].is_scalar &&
                    !read_scalar(call.kernel().slots[k], nb::object(numbers[at++]).ptr(), &scalars[size_t(k)]))
                    throw nb::python_error();
            graph.feed(which, scalars);
        }, nb::arg("call"), nb::arg("numbers"));

    nb::class_<GraphProgram>(m, "GraphProgram")
        .def("__call__", [](GraphProgram& program, nb::handle buffers, nb::handle numbers) {
            if (!program.run(nb::tuple(buffers).ptr(), nb::tuple(numbers).ptr())) throw nb::python_error();
        })
        .def("release", &GraphProgram::release)
        .def_ro("recorded", &GraphProgram::recorded)
        .def_ro("changed", &GraphProgram::changed);
    m.def("graph_program", [](nb::handle calls, nb::handle scratch, nb::sequence bound, nb::handle index,
                              nb::handle place_type, nb::handle fed_type) -> nb::object {
        std::vector<bool> is_bound;
        for (nb::handle buffer : bound) is_bound.push_back(!buffer.is_none());
        const nb::int_ places(is_bound.size());
        PyObject* arguments[] = {calls.ptr(), scratch.ptr(), places.ptr(), index.ptr(), place_type.ptr(), fed_type.ptr()};
        auto plan = Plan::make(arguments);
        if (plan)
            return nb::cast(new GraphProgram(std::move(plan), std::move(is_bound)), nb::rv_policy::take_ownership);
        if (PyErr_Occurred()) throw nb::python_error();
        return nb::none();
    }, "Backend.program's `run(buffers, numbers)`, or None.");
}

}  // namespace

NB_MODULE(_ext, m) {
    nb::set_leak_warnings(false);  // what lives until the interpreter ends is no fault of its user
    add_kernels(m, {
        elementwise::add_arithmetic, elementwise::add_copying, elementwise::add_transcendental,
        elementwise::add_special, elementwise::add_activations, elementwise::add_fused, elementwise::add_casts,
        elementwise::add_cross, elementwise::add_complex,
        reduction::add_reductions, reduction::add_squares, reduction::add_argreductions, reduction::add_scans,
        reduction::add_running,
        indexing::add_gather, indexing::add_scatter, indexing::add_scatter_add, indexing::add_embedding_grad,
        indexing::add_sorting, indexing::add_edges, indexing::add_topk, indexing::add_searching, indexing::add_flip,
        indexing::add_places, indexing::add_histograms, indexing::add_selection, indexing::add_embedding_sum,
        indexing::add_triangles,
        matmul::add_matmul, matmul::add_sparse, matmul::add_distances, matmul::add_complex_products,
        nn::add_softmax, nn::add_attention, nn::add_ctc, nn::add_losses, nn::add_normalization, nn::add_group_norm,
        nn::add_convolution, nn::add_pooling, nn::add_adaptive_pooling, nn::add_resampling, nn::add_sampling,
        nn::add_cubic_sampling, nn::add_dropout, nn::add_folding, nn::add_deformed, nn::add_kept_boxes, nn::add_regions,
        nn::add_optimizers, nn::add_clipping, nn::add_recurrence,
        spectral::add_fourier,
        random::add_random, random::add_distributions,
        linalg::add_lu, linalg::add_lu_factor, linalg::add_triangles, linalg::add_qr, linalg::add_spectral});
    m.def("copy_in", put, nb::arg("buffer"), nb::arg("offset"), nb::arg("data"));
    m.def("copy_out", get, nb::arg("buffer"), nb::arg("offset"), nb::arg("data"));
    m.def("copy_out_later", get_later, nb::arg("buffer"), nb::arg("offset"), nb::arg("data"));
    m.def("copy", copy, nb::arg("out"), nb::arg("out_offset"), nb::arg("source"), nb::arg("source_offset"),
          nb::arg("nbytes"));
    m.def("memory_stats", stats, nb::arg("device"));
    m.def("limit_memory", limit_memory, nb::arg("device"), nb::arg("fraction"));
    m.def("mem_get_info", mem_get_info, nb::arg("device"));
    m.def("reset_memory_counts", reset_memory_counts, nb::arg("device"));
    m.def("reset_peak_memory_stats", reset_peak_memory_stats, nb::arg("device"));
    m.def("empty_cache", [](int device) {
        if (is_recording(device)) return;
        empty_cache(device);
        empty_pinned_cache();
    }, nb::arg("device"));
    nb::class_<PinnedBytes>(m, "PinnedBytes", nb::type_slots(pinned_slots)).def(nb::init<Py_ssize_t>(), nb::arg("nbytes"));
    m.def("is_pinned", [](nb::handle data) { return is_pinned(HostBytes(data, PyBUF_SIMPLE).data()); }, nb::arg("data"));
    m.def("set_library_finder", [](nb::callable find) {
        nb::handle held = find.inc_ref();  // for good: the process may outlive the interpreter
        find_library = [held](const char* name) { return nb::cast<std::string>(held(name)); };
    }, nb::arg("find"));
    m.def("set_precision", [](bool tf32, bool float16_sums, bool bfloat16_sums, bool float16_accumulation) {
        matmul::allows_tf32 = tf32;
        matmul::allowed_sums = {float16_sums, bfloat16_sums, float16_accumulation};
    });
    m.def("set_cudnn", [](bool is_enabled, bool is_deterministic, bool benchmarks) {
        cudnn::settings = {is_enabled, is_deterministic, benchmarks};
        matmul::tries_out = benchmarks;
    });
    m.def("cudnn_version", [] { return cudnn::unusable_reason().empty() ? cudnn::version() : 0; });
    m.def("why_no_cudnn", [] { return cudnn::unusable_reason(); });
    m.def("has_linalg", linalg::is_available);
    add_runtime(m);
    distributed::add_nccl(m);
}
