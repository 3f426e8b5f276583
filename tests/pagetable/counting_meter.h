// A meter that counts, and knows how many entries of each table are not none, so that a table that is given
// up too early is noticed whatever the strategy.
#pragma once

#include <cstdint>
#include <map>

#include "pagetable/tree.h"

namespace tlbscope::pagetable {

struct CountingMeter {
    std::uint64_t loads = 0;
    std::uint64_t entries_read = 0;
    std::uint64_t entries_written = 0;
    std::uint64_t given_up_live = 0;               // tables that went while an entry of them was not none
    std::map<std::uint64_t, std::int64_t> tables;  // in use: table -> entries that are not none

    void load(PhysAddr at, unsigned, unsigned entries) {
        ++loads;
        entries_read += entries;
        EXPECT_NE(table_of(at), tables.end()) << "an entry of no table was read";
    }
    void store(PhysAddr at, unsigned, bool was_none, bool is_none) {
        ++entries_written;
        const auto table = table_of(at);
        ASSERT_NE(table, tables.end()) << "an entry of no table was written";
        table->second += static_cast<int>(was_none) - static_cast<int>(is_none);
    }
    void clear(PhysAddr, std::size_t) {}
    void link(PhysAddr, bool) {}
    void took(PhysAddr table, std::size_t) {
        EXPECT_TRUE(tables.emplace(table.value(), 0).second) << "a table was handed out twice";
    }
    void gave(PhysAddr table, std::size_t) {
        const auto at = tables.find(table.value());
        ASSERT_NE(at, tables.end()) << "a table was given up twice";
        EXPECT_EQ(at->second, 0) << "a table was given up with entries in it";
        if (at->second != 0) ++given_up_live;
        tables.erase(at);
    }
    std::map<std::uint64_t, std::int64_t>::iterator table_of(PhysAddr at) {
        auto table = tables.upper_bound(at.value());
        return table == tables.begin() ? tables.end() : --table;
    }
};

}  // namespace tlbscope::pagetable
