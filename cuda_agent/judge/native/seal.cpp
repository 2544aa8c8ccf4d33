// Takes from a candidate's process what only kernels/ may do: a Python module of the judge's own, loaded before anything of
// the submission. `facts` tells, at that time, where the judge can see from outside that `seal` was done (sealing.py).
#include <ATen/core/dispatch/Dispatcher.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// The dispatch table of an operator is private to torch. An explicit instantiation may name private members all the same.
template <typename Tag, auto Member>
struct Reveal {
  friend constexpr auto member(Tag) { return Member; }
};
struct Definition {
  friend constexpr auto member(Definition);
};
struct Table {
  friend constexpr auto member(Table);
};
template struct Reveal<Definition, &c10::OperatorHandle::operatorDef_>;
template struct Reveal<Table, &c10::impl::OperatorEntry::dispatchTable_>;

#ifdef WITH_CUDA
constexpr c10::DispatchKey PLAIN[] = {c10::DispatchKey::CPU, c10::DispatchKey::CUDA};
#else
constexpr c10::DispatchKey PLAIN[] = {c10::DispatchKey::CPU};
#endif
constexpr c10::DispatchKey OTHERS[] = {  // sealed where an operator has a kernel of that kind
    c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::MkldnnCPU, c10::DispatchKey::QuantizedCPU,
    c10::DispatchKey::NestedTensorCPU,
#ifdef WITH_CUDA
    c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::QuantizedCUDA, c10::DispatchKey::NestedTensorCUDA,
#endif
};

void refuse(const c10::OperatorHandle& operation, torch::jit::Stack*) {
  throw std::runtime_error("forbidden operator " + operation.operator_name().name);
}

c10::KernelFunction refusal() { return c10::KernelFunction::makeFromBoxedFunction<&refuse>(); }

constexpr size_t CALLED = sizeof(c10::BoxedKernel) + 2 * sizeof(void*);  // the part of a KernelFunction that says what it calls
static_assert(CALLED <= sizeof(c10::KernelFunction));

const std::set<std::string>& spared() {
  static const auto* names = [] {
    auto* found = new std::set<std::string>;
    std::istringstream words(ALLOWED_OPERATORS);
    for (std::string word; words >> word;) found->insert("aten::" + word);
    return found;
  }();
  return *names;
}

template <typename Visit>
void each_taken_operator(Visit visit) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (spared().count(name.name)) continue;
    if (const auto operation = dispatcher.findOp(name)) visit(name, *operation);
  }
}

using Range = std::pair<unsigned long, unsigned long>;

// Executable mappings of the Python packages' libraries, but for torch's: numpy's, for one.
std::vector<Range> foreign_code() {
  struct Mapping {
    Range range;
    std::string path;
  };
  std::vector<Mapping> executable;
  std::string packages;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string span, mode, skipped, path;
    fields >> span >> mode >> skipped >> skipped >> skipped >> path;
    if (mode.size() < 3 || mode[2] != 'x' || path.empty() || path[0] != '/') continue;
    const auto dash = span.find('-');
    executable.push_back({{std::stoul(span, nullptr, 16), std::stoul(span.substr(dash + 1), nullptr, 16)}, path});
    const auto torch = path.rfind("/torch/lib/libtorch_cpu.so");
    if (torch != std::string::npos) packages = path.substr(0, torch + 1);
  }
  if (packages.empty()) throw std::runtime_error("libtorch_cpu.so is not where torch is installed");
  std::vector<Range> found;
  for (const Mapping& mapping : executable) {
    if (mapping.path.compare(0, packages.size(), packages) != 0) continue;
    const std::string package = mapping.path.substr(packages.size(), mapping.path.find('/', packages.size()) - packages.size());
    if (package != "torch" && package != "nvidia" && package != "triton") found.push_back(mapping.range);
  }
  return found;
}

std::vector<Range>& taken_code() {
  static auto* ranges = new std::vector<Range>;
  return *ranges;
}

void on_fault(int, siginfo_t* fault, void*) {
  const auto address = reinterpret_cast<unsigned long>(fault->si_addr);
  for (const Range& range : taken_code()) {
    if (range.first <= address && address < range.second) {
      static const char text[] = "\nforbidden library: forward runs another library's code, such as numpy's\n";
      [[maybe_unused]] const auto written = write(2, text, sizeof(text) - 1);
      break;
    }
  }
  signal(SIGSEGV, SIG_DFL);  // on return the fault happens again
}

void take_operators() {
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>;  // never given back
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}  // that kernels are replaced is the purpose
  } silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto& dispatcher = c10::Dispatcher::singleton();
  each_taken_operator([&](const c10::OperatorName& name, const c10::OperatorHandle& operation) {
    for (const c10::DispatchKey key : PLAIN) kept->push_back(dispatcher.registerImpl(name, key, refusal(), std::nullopt, nullptr, "sealed"));
    for (const c10::DispatchKey key : OTHERS) {
      if (operation.hasKernelForDispatchKey(key)) kept->push_back(dispatcher.registerImpl(name, key, refusal(), std::nullopt, nullptr, "sealed"));
    }
  });
}

void take_code() {
  taken_code() = foreign_code();
  struct sigaction action {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  for (const Range& range : taken_code()) {
    if (mprotect(reinterpret_cast<void*>(range.first), range.second - range.first, PROT_READ) != 0) throw std::runtime_error("mprotect failed");
  }
}

// From now on no thread maps code or makes memory executable: what was taken stays taken, what is code stays as it is. A
// driver that compiles for its device needs that, so not with CUDA.
void forbid_new_code() {
#ifndef WITH_CUDA
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_pkey_mprotect, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(__u64)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof(steps) / sizeof(steps[0]), steps};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  for (const unsigned long flags : {SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_TSYNC}) {
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0) return;
  }
  throw std::runtime_error("seccomp failed");
#endif
}

// What Python in this process is refused for as long as it lives. A hook of C's cannot be found, emptied or taken off by Python.
struct Refusals {
  std::set<std::string> events, prefixes, modules, extensions;
  std::string text;
};
Refusals* refusals = nullptr;

bool is_library(const std::string& path) {
  for (auto at = path.find(".so"); at != std::string::npos; at = path.find(".so", at + 1)) {
    if (at + 3 == path.size() || path[at + 3] == '.') return true;
  }
  return false;
}

// A file that tells of this process's memory, or a library, under whatever name.
bool is_out_of_reach(const std::string& name) {
  char resolved[PATH_MAX];
  const std::string path = realpath(name.c_str(), resolved) ? resolved : name;
  for (const std::string& one : {name, path}) {
    if (one == "/proc" || one.compare(0, 6, "/proc/") == 0 || is_library(one)) return true;
  }
  return false;
}

std::string text_of(PyObject* value) {
  if (!value || value == Py_None) return "";
  if (PyBytes_Check(value)) return PyBytes_AS_STRING(value);
  PyObject* bytes = PyUnicode_Check(value) ? PyUnicode_EncodeFSDefault(value) : nullptr;
  if (!bytes) PyErr_Clear();
  const std::string found = bytes ? PyBytes_AS_STRING(bytes) : "/proc/";  // what is no path is none that may be opened
  Py_XDECREF(bytes);
  return found;
}

bool is_refused(const std::string& event, PyObject* arguments) {
  if (refusals->events.count(event)) return true;
  for (const std::string& prefix : refusals->prefixes) {
    if (event.compare(0, prefix.size(), prefix) == 0) return true;
  }
  const Py_ssize_t count = PyTuple_Check(arguments) ? PyTuple_GET_SIZE(arguments) : 0;
  if (event == "open" && count > 0) {
    PyObject* path = PyTuple_GET_ITEM(arguments, 0);
    return !PyLong_Check(path) && is_out_of_reach(text_of(path));
  }
  if (event == "import" && count > 1) {
    const std::string module = text_of(PyTuple_GET_ITEM(arguments, 0)), file = text_of(PyTuple_GET_ITEM(arguments, 1));
    return refusals->modules.count(module.substr(0, module.find('.'))) || (file.compare(0, 5, "/tmp/") == 0 && !refusals->extensions.count(file));
  }
  return false;
}

int on_event(const char* event, PyObject* arguments, void*) {
  if (!is_refused(event, arguments)) return 0;
  PyErr_Format(PyExc_PermissionError, "%s %s; the work must be done by kernels/", event, refusals->text.c_str());
  return -1;
}

using Names = std::set<std::string>;

void refuse_from_now_on(Names events, Names prefixes, Names modules, Names extensions, std::string text) {
  if (refusals) throw std::runtime_error("refused already");
  refusals = new Refusals{std::move(events), std::move(prefixes), std::move(modules), std::move(extensions), std::move(text)};
  if (PySys_AddAuditHook(&on_event, nullptr) != 0) throw pybind11::error_already_set();
}

void seal() {
  take_operators();
  take_code();
  forbid_new_code();
}

pybind11::tuple facts() {
  static bool told = false;
  if (std::exchange(told, true)) throw std::runtime_error("told already");
  std::vector<unsigned long> entries;
  each_taken_operator([&](const c10::OperatorName&, const c10::OperatorHandle& operation) {
    const auto& table = (operation.*member(Definition{}))->op.*member(Table{});
    for (const c10::DispatchKey key : PLAIN) {
      entries.push_back(reinterpret_cast<unsigned long>(&table[c10::getDispatchTableIndexForDispatchKey(key)]));
    }
  });
  const auto kernel = refusal();
  return pybind11::make_tuple(pybind11::bytes(reinterpret_cast<const char*>(&kernel), CALLED), entries, foreign_code());
}

}  // namespace

PYBIND11_MODULE(judge_seal, module) {
  module.def("facts", &facts, "What a taken operator's entry begins with, where the entries lie, and the code to be taken; once.");
  module.def("refuse_from_now_on", &refuse_from_now_on, "Audit events, their prefixes, modules, the only extensions, and how a refusal reads.");
  module.def("seal", &seal, "Take operators, other libraries' code, and on a processor the right to new code; irrevocable.");
}
