// The audit of somebody's own kernel: a log of what it did to its page tables and translations, one event a
// line, checked for what cannot be right. docs/audit-log.md describes the log.
//
// The auditor believes the log and nothing else. It knows which tables are allocated and which entries stand
// in them, and for each CPU which translations it may still hold: those it has used and no flush has covered
// since. Each finding names the event that went wrong and the earlier one that it contradicts, and the audit
// goes on as if the event had done what it says, so that one mistake is not reported again and again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import_text/problems.h"

namespace tlbscope::tables {

enum class Fault : std::uint8_t {
    kDoubleAllocation,  // a frame handed out while it is in use
    kDoubleFree,
    kFreeOfUnknown,   // never allocated in this log
    kFreedInUse,      // a table freed while entries of it are live, or while one points to it
    kFreedTableUsed,  // an entry written to or removed from a table that is free
    kOverlap,         // a mapping over a mapping
    kUnmapOfNothing,
    kProtectOfNothing,
    kStale,  // an access through a translation that is no more
    kLeak,   // a table that holds nothing and is never freed
};
[[nodiscard]] std::string_view name_of(Fault fault);

struct Finding {
    Fault fault = Fault::kLeak;
    std::uint64_t line = 0;     // of the event that went wrong
    std::uint64_t earlier = 0;  // of the event it contradicts; 0 when there is none
    std::string what;           // in words, without the lines
    std::string contradicts;    // what the earlier event said
};

struct AuditOptions {
    bool switch_flushes = false;  // a switch of space drops all but global translations: no ASIDs
    std::uint64_t page = 4096;    // bytes of a mapping whose size the log does not say
    std::size_t most_findings = 1000;
};

class Auditor {
  public:
    explicit Auditor(const AuditOptions& options) : options_(options) {}
    void line(std::string_view text, std::uint64_t number);
    // At the end of the log: looks for leaks.
    void finish();

    [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
    [[nodiscard]] std::uint64_t found() const { return found_; }  // kept or not
    [[nodiscard]] const import::Problems& problems() const { return problems_; }
    [[nodiscard]] std::uint64_t events() const { return events_; }
    [[nodiscard]] std::size_t tables_left() const;
    [[nodiscard]] std::uint64_t unmapped_accesses() const { return unmapped_accesses_; }

  private:
    struct Words;
    struct Frame {
        bool allocated = false;
        bool table = true;
        std::uint64_t since = 0;                                  // line of the allocation or release
        std::uint64_t used = 0;                                   // line of the last use as a table
        std::set<std::pair<std::string, std::uint64_t>> entries;  // (space, address) of live entries in it
        std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>
            pointers;                                   // (table, address) -> line: who points to it
        std::map<std::uint64_t, std::uint64_t> points;  // address -> table: what its entries point to
    };
    struct Mapping {
        std::uint64_t bytes = 0;
        std::uint64_t physical = 0;
        std::uint64_t table = 0;  // 0: the log does not say
        std::uint64_t line = 0;
        std::uint8_t protection = 7;
    };
    using Space = std::map<std::uint64_t, Mapping>;  // by address
    // What a CPU may hold.
    struct Held {
        std::uint64_t bytes = 0;
        std::uint64_t physical = 0;
        std::uint8_t protection = 7;
        std::uint64_t used = 0;  // line of its last use
        std::uint64_t gone = 0;  // line that ended it; 0: it is good
        std::string how;         // "unmapped", "protected", "mapped anew"
    };
    struct Cpu {
        std::string space;
        std::map<std::pair<std::string, std::uint64_t>, Held> held;  // by (space, address)
        std::uint64_t largest = 0;                                   // bytes of the largest it ever held
    };

    void alloc(const Words& words);
    void release(const Words& words);
    void map(const Words& words);
    void unmap(const Words& words);
    void protect(const Words& words);
    void flush(const Words& words);
    void switch_space(const Words& words);
    void access(const Words& words);
    bool table_usable(std::uint64_t table, const Words& words, const char* doing);
    void forget_entry(const std::string& space, Space::iterator mapping);
    void end_translations(const std::string& space, std::uint64_t start, std::uint64_t bytes,
                          std::uint64_t line, const char* how, std::uint8_t protection);
    void find(Fault fault, std::uint64_t line, std::string what, std::uint64_t earlier,
              std::string contradicts);

    AuditOptions options_;
    std::vector<Finding> findings_;
    std::uint64_t found_ = 0;
    import::Problems problems_;
    std::uint64_t events_ = 0;
    std::uint64_t unmapped_accesses_ = 0;
    bool marked_ = false;  // the log has lines with "audit:", so lines without are a console's other words
    std::unordered_map<std::uint64_t, Frame> frames_;
    std::map<std::string, Space> spaces_;
    std::map<std::string, Cpu> cpus_;
};

}  // namespace tlbscope::tables
