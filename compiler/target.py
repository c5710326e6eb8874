"""The processor that kernels are written for: everything the compiler knows of it stands here.

    AVX512    vectors of 64 bytes, 32 registers; on some processors each is two halves that memory has apart
    AVX2      vectors of 32 bytes, 16 registers; also for what has less, which LLVM then splits

A target changes speed and code, never bits: sums have an order of their own (emit/reduce.py), every product is a chain
of fused multiply-adds, and nothing else is contracted. A processor without a fused multiply-add calls the C library's
`fma` for it, with the same bits and slowly.

Times are rough, of one core of the machine that docs/architecture.md names; they only decide what threads share.
"""

from .plain import Plain, changed

# Of a cache line: what is aligned, tiles of transposed operands, and what one thread gets at least, so that no line is
# written by two. No vector is longer.
LINE_BYTES = 64
# A level-1 cache of LEVEL1_WAYS ways; what lies a way's bytes apart falls into the same lines of it.
LEVEL1_BYTES, LEVEL1_WAYS = 32768, 8
# Columns summed at once in memory: their sums, totals and errors take 48 KB of f32. Sums in registers, with fewer
# columns at once, were slower: rows are then read in short pieces.
COLUMN_CHUNK = 4096
# Of a row of a panel that is packed for products over grids: columns that are computed together, whatever the vectors.
PANEL_BYTES = 128


class Blocks(Plain):
    """How the operands of products are cut (emit/gemm_blocks.py) for a level-2 cache: what is packed and what reads it
    take most of one."""

    __slots__ = str.split(
        "packed_bytes turned_bytes turned_from_bytes turned_from_columns small_bytes rows shallow_rows columns "
        "few_rows few_colliding_rows asks_for_sums columns_for_few packed_for_turned_bytes"
    )

    def __init__(
        self,
        packed_bytes,
        turned_bytes,
        turned_from_bytes,
        turned_from_columns,
        small_bytes,
        rows,
        shallow_rows,
        columns,
        few_rows,
        few_colliding_rows,
        asks_for_sums=False,
        columns_for_few=None,
        packed_for_turned_bytes=None,
    ):
        # Of B, packed: panels of several columns, of a stretch of the sum (Target.block_bytes).
        self.packed_bytes = packed_bytes
        # Of a row of A that is turned. Where this is less than Target.block_bytes stretches are shorter, so that there
        # are more columns to use it.
        self.turned_bytes = turned_bytes
        # A has more bytes than this if it is turned for the length of its rows alone, and a quarter if they collide.
        self.turned_from_bytes = turned_from_bytes
        # So many columns of B at least use it: an element takes 0.8 cycles to turn, and a cycle or two for the sums of
        # a vector of columns.
        self.turned_from_columns = turned_from_columns
        # B is best read where it lies if it has no more bytes than this, and for no more rows than `few_rows`, or if
        # its rows collide in a cache `few_colliding_rows`.
        self.small_bytes = small_bytes
        self.few_rows = few_rows
        self.few_colliding_rows = few_colliding_rows
        # Of A, that read a panel one after the other. A multiple of the tiles, and of a line where A is transposed.
        self.rows = rows
        # The same of a product that is large and sums few terms: what it takes is to write C, a stretch of each row.
        self.shallow_rows = shallow_rows
        # At most, of B: what a call needs of scratch memory grows with them.
        self.columns = columns
        # Whether tiles ask for what the next one adds to, which no AVX-512 was faster for.
        self.asks_for_sums = asks_for_sums
        # The same as `columns` for twice `rows` at most: these take hardly longer than packing, which finds the memory
        # that it writes in a cache still if that is little.
        self.columns_for_few = columns_for_few or columns
        # The same as `packed_bytes` where A is turned: for more columns it is turned less often. A level-3 cache gives
        # a panel fast enough, if all `rows` read it.
        self.packed_for_turned_bytes = packed_for_turned_bytes or packed_bytes


class Target(Plain):
    """`vector_bytes`: of the widest vector; `n_registers`: how many of them; `sweep_bytes`: what a loop works on at
    once. The costs are of that much: a load or store, a load at computed positions, the classes of ops (ops/table.py).
    """

    __slots__ = str.split(
        "name vector_bytes sweep_bytes n_registers memory_ns gather_ns costs_ns flops_per_ns bytes_per_ns "
        "block_bytes blocks short_row wait_ns move_ns_per_byte large_ns part_ns few_columns many_rows sums_apart "
        "converts_halves stores_masked_slowly asks_for_rows moved_bytes streams_from_bytes warp most_warps block_warps"
    )

    def __init__(
        self,
        name,
        vector_bytes,
        sweep_bytes,
        n_registers,
        memory_ns,
        gather_ns,
        costs_ns,
        flops_per_ns,
        bytes_per_ns=50,
        block_bytes=4096,
        blocks=None,
        short_row=4,
        wait_ns=300,
        move_ns_per_byte=0.15,
        large_ns=4000,
        part_ns=1000,
        few_columns=64,
        many_rows=512,
        sums_apart=False,
        converts_halves=False,
        stores_masked_slowly=False,
        asks_for_rows=False,
        moved_bytes=None,
        streams_from_bytes=None,
        warp=0,
        most_warps=0,
        block_warps=0,
    ):
        self.name = name
        self.vector_bytes = vector_bytes
        self.sweep_bytes = sweep_bytes
        self.n_registers = n_registers
        self.memory_ns = memory_ns
        self.gather_ns = gather_ns
        self.costs_ns = costs_ns
        # Of products.
        self.flops_per_ns = flops_per_ns
        self.bytes_per_ns = bytes_per_ns
        # Of a column of a packed panel: a panel takes 32 times as much, an eighth of a level-2 cache.
        self.block_bytes = block_bytes
        # None: B is packed a panel at a time, for all rows of A.
        self.blocks = blocks
        # A row of at most this many vectors is unrolled; its values stay in registers.
        self.short_row = short_row
        # What it takes to wait for another thread that is just as fast, and to fetch what it has written.
        self.wait_ns = wait_ns
        self.move_ns_per_byte = move_ns_per_byte
        # One step of this time makes sharing pay; then others are shared too. Between two waits no thread gets less
        # than `part_ns`, on average, if there are more than two.
        self.large_ns = large_ns
        self.part_ns = part_ns
        # Threads do not share fewer columns, and share more rows than this rather than columns.
        self.few_columns = few_columns
        self.many_rows = many_rows
        # Whether kernels that sum rows and those that sum columns are never one: many more warps can do either than
        # both.
        self.sums_apart = sums_apart
        # Whether every such processor has instructions that convert vectors of float16.
        self.converts_halves = converts_halves
        # Whether some such processors take dozens of cycles for a store of some lanes.
        self.stores_masked_slowly = stores_masked_slowly
        # Whether kernels ask for the next row of what several sweeps read (emit/ahead.py).
        self.asks_for_rows = asks_for_rows
        # Of a vector where memory is what takes the time, None: `vector_bytes` (emit/module.py: Module.mostly_move).
        self.moved_bytes = moved_bytes
        # Of a result that is stored past the caches (emit/streams.py); None: none is.
        self.streams_from_bytes = streams_from_bytes
        # Of a GPU: threads that work in step, each of which is one lane; how many warps there are at most, and in a
        # block.
        self.warp = warp
        self.most_warps = most_warps
        self.block_warps = block_warps

    def __hash__(self):
        return hash(self.name)

    @property
    def columns(self):
        """Columns that threads get at once: a cache line of f32, or the lanes of a warp."""
        return max(LINE_BYTES // 4, self.warp)

    @property
    def tile_heights(self):
        """Rows of a tile of a product: 16 accumulators where there are 32 registers, 12 where there are 16; then the
        remainders. Taller tiles were no faster (12 rows: +0.5 % at 512^3, -8 % at 1024^3)."""
        return (8, 4, 2) if self.n_registers >= 32 else (6, 4, 2)

    def rows_to_pack_for(self, element_bytes):
        """Rows of C from which a product copies a panel of B even if its rows are contiguous: read again and again from
        lines that lie far apart it costs more than the copy (512^3: equal; 1024^3: 99 against 106 Gflop/s)."""
        return 2048 // element_bytes if self.n_registers >= 32 else 96

    @property
    def lanes_of_truths(self):
        """Of a vector of truths, a byte each, with nothing wider beside them."""
        return self.warp or self.sweep_bytes

    def lanes(self, elements):
        """Lanes of the widest type that fills a vector: floats decide, then integers. A kernel of f32 with i64 indices
        has the lanes of f32. A warp has as many as it has threads."""
        if self.warp:
            return self.warp
        if "f64" in elements or ("i64" in elements and not elements & {"f32", "i32"}):
            return self.sweep_bytes // 8
        return self.sweep_bytes // 4


AVX512 = Target(
    "AVX512",
    vector_bytes=64,
    sweep_bytes=64,
    n_registers=32,
    memory_ns=0.3,
    gather_ns=5.0,
    costs_ns={"cheap": 0.2, "divide": 3.0, "function": 4.0},
    flops_per_ns={"f32": 100, "f64": 50},
    converts_halves=True,
    # Nine tenths of a megabyte.
    blocks=Blocks(
        packed_bytes=1 << 19,
        turned_bytes=4096,
        turned_from_bytes=1 << 20,
        turned_from_columns=512,
        small_bytes=1 << 21,
        rows=96,
        shallow_rows=16,
        columns=1024,
        few_rows=128,
        few_colliding_rows=64,
    ),
)
# On Zen 4 a vector of 64 bytes that crosses a line or comes up where a store lies the same bytes after a page waits for
# both its halves: of a million floats x * b took 5 % less in vectors of 32 bytes, and 40 % less where its result began
# 64 bytes after x does in a page. Elementary functions take up to 25 % more so, as twice the instructions.
AVX512_IN_HALVES = changed(AVX512, name="AVX512-halves", moved_bytes=32)
AVX2 = Target(
    "AVX2",
    vector_bytes=32,
    # Two vectors: elementary functions are chains of instructions that wait for each other, and two fill the time.
    # One vector at a time took 1.4 to 1.6 times as long for gelu and cross entropy, and the same for sums and products.
    sweep_bytes=64,
    n_registers=16,
    memory_ns=0.3,
    gather_ns=5.0,
    costs_ns={"cheap": 0.2, "divide": 3.0, "function": 4.0},
    flops_per_ns={"f32": 100, "f64": 50},
    stores_masked_slowly=True,
    asks_for_rows=True,
    streams_from_bytes=10 << 20,
    # Two thirds of 512 KB; other threads use level 3.
    blocks=Blocks(
        packed_bytes=1 << 18,
        turned_bytes=2048,
        turned_from_bytes=0,
        turned_from_columns=64,
        small_bytes=1 << 15,
        rows=48,
        shallow_rows=48,
        columns=512,
        few_rows=64,
        few_colliding_rows=6,
        asks_for_sums=True,
        columns_for_few=128,
        packed_for_turned_bytes=1 << 20,
    ),
)
# Most such processors, from x86-64-v3 on.
AVX2_WITH_HALVES = changed(AVX2, name="AVX2+F16C", converts_halves=True)
# A warp is one vector of 32 lanes, which is also how many lanes sums have (emit/reduce.py), so sums have the bits they
# have on a CPU. Costs are those of a core: they decide only whether sums are cut in blocks.
GPU = Target(
    "GPU",
    vector_bytes=128,
    sweep_bytes=128,
    n_registers=255,
    # One warp waits for what it reads, a few loads at a time.
    memory_ns=10.0,
    gather_ns=5.0,
    costs_ns={"cheap": 0.2, "divide": 3.0, "function": 4.0},
    flops_per_ns={"f32": 100, "f64": 50},
    # Rows of up to 512 elements stay in registers, 16 of each thread.
    short_row=16,
    # A kernel waits for the one before it, which takes microseconds.
    wait_ns=3000,
    few_columns=33,
    sums_apart=True,
    warp=32,
    # Those of 128 multiprocessors with 64 each; a warp does several units where there are more.
    most_warps=8192,
    block_warps=4,
)
# Text that is written without a target may have vectors as wide as this.
WIDEST = AVX512


def target_for(float_lanes, converts_halves=False, in_halves=False):
    """The Target whose vectors hold so many float32. converts_halves: whether it has instructions for float16.
    in_halves: whether vectors of 64 bytes are two halves to its memory."""
    if 4 * float_lanes >= AVX512.vector_bytes:
        return AVX512_IN_HALVES if in_halves else AVX512
    return AVX2_WITH_HALVES if converts_halves else AVX2


def targets_of_kernels(target):
    """The Targets that routines may have where programs have this one: the runtime's own, with vectors as wide or
    wider."""
    return [t for t in (AVX2, AVX512) if t.vector_bytes >= min(target.vector_bytes, WIDEST.vector_bytes)]
