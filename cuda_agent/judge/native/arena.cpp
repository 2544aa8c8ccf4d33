// What torch allocates from in a CUDA candidate: one block that the judge shares, so that it can read every tensor there.
// Best fit with coalescing; an allocation that does not fit returns null, which torch reports as out of memory. Memory is
// handed out again as soon as it is freed, as torch's own allocator does within a stream.
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

constexpr std::size_t kGrain = 512;
std::mutex lock;
std::map<std::uintptr_t, std::size_t> idle;       // by address
std::multimap<std::size_t, std::uintptr_t> bySize;  // the same by size
std::map<std::uintptr_t, std::size_t> taken;

void forget(std::uintptr_t address, std::size_t size) {
  idle.erase(address);
  for (auto [entry, end] = bySize.equal_range(size); entry != end; ++entry) {
    if (entry->second == address) {
      bySize.erase(entry);
      return;
    }
  }
}

void remember(std::uintptr_t address, std::size_t size) {
  auto next = idle.lower_bound(address);
  if (next != idle.end() && next->first == address + size) {
    const std::size_t more = next->second;
    forget(next->first, more);
    size += more;
  }
  auto before = idle.lower_bound(address);
  if (before != idle.begin()) {
    --before;
    if (before->first + before->second == address) {
      const auto [start, length] = *before;
      forget(start, length);
      address = start;
      size += length;
    }
  }
  idle[address] = size;
  bySize.emplace(size, address);
}

}  // namespace

extern "C" void arena_begin(std::uintptr_t address, std::size_t size) {
  std::lock_guard<std::mutex> guard(lock);
  idle.clear();
  bySize.clear();
  taken.clear();
  remember(address, size);
}

extern "C" void* arena_alloc(std::size_t size, int, void*) {
  std::lock_guard<std::mutex> guard(lock);
  size = size == 0 ? kGrain : (size + kGrain - 1) / kGrain * kGrain;
  const auto found = bySize.lower_bound(size);
  if (found == bySize.end()) return nullptr;
  const std::uintptr_t address = found->second;
  const std::size_t whole = found->first;
  forget(address, whole);
  if (whole > size) remember(address + size, whole - size);
  taken[address] = size;
  return reinterpret_cast<void*>(address);
}

extern "C" void arena_free(void* pointer, std::size_t, int, void*) {
  std::lock_guard<std::mutex> guard(lock);
  const auto found = taken.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == taken.end()) return;
  const auto [address, size] = *found;
  taken.erase(found);
  remember(address, size);
}
