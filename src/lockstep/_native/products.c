/* Products of float32 matrices for steps that are short, and what an optimizer does with a kernel's gradient.

   Compiled on the machine that runs it (compiler.py). Beside this file may lie `update.h`, which says what an update
   does (update.py): how many arrays, numbers and results it has (UPDATE_ARRAYS, UPDATE_NUMBERS, UPDATE_RESULTS), and

     INLINE void update(const float *g, const float *const *in, const float *numbers, float *const *out,
                        long at, long stride, long rows, long columns)

   which reads a tile of the gradient, and of each array the elements from `at` on, and writes the results.

   Everything is reduced to C(i, j) = sum over k of A(i, k) B(k, j). Registers hold a tile of C, ROWS x COLUMNS. For
   each k a number of A meets a row of B, which is a panel of COLUMNS: where it lies, or turned beforehand.

   Threads take chunks of C: the caller from the front, threads of XLA's pool from the back. Whoever is late finds less
   to do, and nobody waits for a thread that sleeps. Which thread computes a tile does not matter to its digits. */

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#if defined(__AVX512F__)
#define LANES 16
#define ROWS 8
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#define ROWS 6
#else
#error "not measured on this processor"
#endif
#define COLUMNS (2 * LANES)

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

#if __has_include("update.h")
#include "update.h"
#endif

/* Chunks are small, for a thread may come late; who waits longer than that lets others run. */
enum { CHUNKS_PER_THREAD = 8, SPINS = 2000 };
/* Elements of B: fewer are copied by one thread; so many stay near to a core while it goes through the rows of C. */
enum { ALONE = 1 << 15, NEAR = 1 << 16 };
/* Multiplications that are worth another thread, some microseconds; an element of an update counts for so many. */
enum { WORTH_A_THREAD = 1 << 17, UPDATE_COSTS = 16 };

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

typedef struct {
  void (*run)(const void *job, long chunk);
  const void *job;
  _Atomic long first, end; /* The next chunk from the front, and the last one that went from the back. */
  _Atomic long taken, done;
  _Atomic int users;
  long count;
} Crew;

/* Every chunk is given out once: `taken` counts what is promised, and decides before either end moves. */
INLINE int take(Crew *crew) { return atomic_fetch_add(&crew->taken, 1) < crew->count; }

static void leave(Crew *crew) {
  if (atomic_fetch_sub(&crew->users, 1) == 1) free(crew);
}

static void help(void *data) {
  Crew *crew = data;
  while (take(crew)) {
    crew->run(crew->job, atomic_fetch_sub(&crew->end, 1) - 1);
    atomic_fetch_add(&crew->done, 1);
  }
  leave(crew);
}

static void relax(long spins) {
  if (spins > SPINS) sched_yield();
  else __builtin_ia32_pause();
}

/* Whether there is an error; nobody else hears of it. */
static int has_failed(const XLA_FFI_CallFrame *frame, XLA_FFI_Error *error) {
  if (error == NULL) return 0;
  XLA_FFI_Error_Destroy_Args gone = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
  frame->api->XLA_FFI_Error_Destroy(&gone);
  return 1;
}

static long threads_of(const XLA_FFI_CallFrame *frame) {
  int64_t count = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, NULL, frame->ctx, &count};
  if (has_failed(frame, frame->api->XLA_FFI_ThreadPool_NumThreads(&args))) return 1;
  return count > 0 ? (long)count : 1;
}

static void ask_for_help(const XLA_FFI_CallFrame *frame, Crew *crew) {
  XLA_FFI_ThreadPool_Schedule_Args args = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, NULL, frame->ctx, help, crew};
  atomic_fetch_add(&crew->users, 1);
  if (has_failed(frame, frame->api->XLA_FFI_ThreadPool_Schedule(&args))) leave(crew);
}

/* Runs chunks 0 to count - 1, and returns when all are done. */
static void run_all(const XLA_FFI_CallFrame *frame, long threads, long count, void (*run)(const void *, long),
                    const void *job) {
  Crew *crew = threads > 1 && count > 1 ? malloc(sizeof *crew) : NULL;
  if (crew == NULL) {
    for (long chunk = 0; chunk < count; chunk++) run(job, chunk);
    return;
  }
  *crew = (Crew){.run = run, .job = job, .end = count, .users = 1, .count = count};
  for (long i = 1; i < threads && i < count; i++) ask_for_help(frame, crew);
  long mine = 0;
  for (; take(crew); mine++) run(job, atomic_fetch_add(&crew->first, 1));
  for (long spins = 0; atomic_load(&crew->done) + mine < count; spins++) relax(spins);
  leave(crew);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const float *a, *b;
  float *c;
  long m, n, k;
  long ai, ak; /* Strides of A, in elements; of B; of C. */
  long bk, bj;
  long ci, cj;
  long panels, copied; /* How many B has; those from number `copied` on are read from `copies`. */
  float *copies;
  long row_chunk, panel_chunk, chunks_across; /* What a chunk has, rows of C and panels; how many lie side by side. */
  int by_rows;                                /* Whether a chunk is made row by row of tiles, not panel by panel. */
#ifdef UPDATE_RESULTS
  const float *in[UPDATE_ARRAYS + 1];
  const float *numbers;
  float *out[UPDATE_RESULTS];
#endif
} Job;

/* `rows` is known to the compiler wherever this is inlined. */
INLINE void multiply_exactly(const int rows, const float *a, long ai, long ak, const float *b, long bk, long k,
                             float *c, long ci) {
  vec sums[ROWS][2];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) sums[i][0] = sums[i][1] = (vec){0};
  for (long step = 0; step < k; step++, a += ak, b += bk) {
    const vec low = *(const vec *)b, high = *(const vec *)(b + LANES);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      sums[i][0] += a[i * ai] * low;
      sums[i][1] += a[i * ai] * high;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
    *(vec *)(c + i * ci) = sums[i][0];
    *(vec *)(c + i * ci + LANES) = sums[i][1];
  }
}

/* Not inlined: it has all registers for itself. */
static __attribute__((noinline)) void multiply(long rows, const float *a, long ai, long ak, const float *b, long bk,
                                               long k, float *c, long ci) {
  switch (rows) {
    case 1: multiply_exactly(1, a, ai, ak, b, bk, k, c, ci); break;
    case 2: multiply_exactly(2, a, ai, ak, b, bk, k, c, ci); break;
    case 3: multiply_exactly(3, a, ai, ak, b, bk, k, c, ci); break;
    case 4: multiply_exactly(4, a, ai, ak, b, bk, k, c, ci); break;
    case 5: multiply_exactly(5, a, ai, ak, b, bk, k, c, ci); break;
#if ROWS > 6
    case 6: multiply_exactly(6, a, ai, ak, b, bk, k, c, ci); break;
    case 7: multiply_exactly(7, a, ai, ak, b, bk, k, c, ci); break;
#endif
    default: multiply_exactly(ROWS, a, ai, ak, b, bk, k, c, ci);
  }
}

static long least(long a, long b) { return a < b ? a : b; }

#ifdef UPDATE_RESULTS

/* Asks for what the update of a tile will read; it comes while the product is made. */
INLINE void fetch(const Job *job, long at) {
  for (long i = 0; i < ROWS; i++, at += job->n)
    for (int array = 0; array < UPDATE_ARRAYS; array++)
      for (long j = 0; j < COLUMNS; j += 16) __builtin_prefetch(job->in[array] + at + j);
}

/* A whole tile: the gradient does not leave the registers for long, and the next product begins meanwhile. */
static __attribute__((noinline)) void update_tile(const Job *job, const float *a, const float *b, long bk, long at) {
  float tile[ROWS * COLUMNS];
  fetch(job, at);
  multiply_exactly(ROWS, a, 1, job->ak, b, bk, job->k, tile, COLUMNS);
  update(tile, job->in, job->numbers, job->out, at, job->n, ROWS, COLUMNS);
}

#endif

/* Copies a panel, and fills it up with zeros. */
static void copy_panel(const void *data, long number) {
  const Job *job = data;
  const long column = (job->copied + number) * COLUMNS, columns = least(COLUMNS, job->n - column);
  const float *b = job->b + column * job->bj;
  float *to = job->copies + number * job->k * COLUMNS;
  if (job->bj == 1)
    for (long step = 0; step < job->k; step++) {
      memcpy(to + step * COLUMNS, b + step * job->bk, columns * sizeof *to);
      for (long j = columns; j < COLUMNS; j++) to[step * COLUMNS + j] = 0;
    }
  else {
    /* Turned: some rows of the copy at a time, so that each line of B is read once. */
    for (long block = 0; block < job->k; block += 16) {
      const long end = least(job->k, block + 16);
      for (long j = 0; j < columns; j++)
        for (long step = block; step < end; step++) to[step * COLUMNS + j] = b[j * job->bj + step * job->bk];
      for (long j = columns; j < COLUMNS; j++)
        for (long step = block; step < end; step++) to[step * COLUMNS + j] = 0;
    }
  }
}

static void make_tile(const Job *job, long row, long end, long panel) {
  const long rows = least(ROWS, end - row), column = panel * COLUMNS, columns = least(COLUMNS, job->n - column);
  const int is_copied = panel >= job->copied;
  const float *a = job->a + row * job->ai;
  const float *b = is_copied ? job->copies + (panel - job->copied) * job->k * COLUMNS : job->b + column * job->bj;
  const long bk = is_copied ? COLUMNS : job->bk;
  float tile[ROWS * COLUMNS];
#ifdef UPDATE_RESULTS
  const long at = row * job->n + column;
  if (rows == ROWS && columns == COLUMNS) {
    update_tile(job, a, b, bk, at);
    return;
  }
  multiply(rows, a, job->ai, job->ak, b, bk, job->k, tile, COLUMNS);
  update(tile, job->in, job->numbers, job->out, at, job->n, rows, columns);
#else
  float *c = job->c + row * job->ci + column * job->cj;
  if (columns == COLUMNS && job->cj == 1) {
    multiply(rows, a, job->ai, job->ak, b, bk, job->k, c, job->ci);
    return;
  }
  multiply(rows, a, job->ai, job->ak, b, bk, job->k, tile, COLUMNS);
  for (long j = 0; j < columns; j++)
    for (long i = 0; i < rows; i++) c[i * job->ci + j * job->cj] = tile[i * COLUMNS + j];
#endif
}

static void make_chunk(const void *data, long chunk) {
  const Job *job = data;
  const long row = chunk / job->chunks_across * job->row_chunk, last_row = least(job->m, row + job->row_chunk);
  const long panel = chunk % job->chunks_across * job->panel_chunk;
  const long last_panel = least(job->panels, panel + job->panel_chunk);
  if (job->by_rows)
    for (long i = row; i < last_row; i += ROWS)
      for (long p = panel; p < last_panel; p++) make_tile(job, i, last_row, p);
  else
    for (long p = panel; p < last_panel; p++)
      for (long i = row; i < last_row; i += ROWS) make_tile(job, i, last_row, p);
}

static XLA_FFI_Error *no_memory(const XLA_FFI_CallFrame *frame) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL,
                                    "no memory is left for a copy of a matrix", XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
  return frame->api->XLA_FFI_Error_Create(&args);
}

/* Divides C among the threads: by its rows where each thread has many, else by panels, too. */
static XLA_FFI_Error *run_job(const XLA_FFI_CallFrame *frame, Job *job) {
  const long work = job->m * job->n * (job->k + UPDATE_COSTS);
  const long threads = least(threads_of(frame), 1 + work / WORTH_A_THREAD), tiles = (job->m + ROWS - 1) / ROWS;
  job->panels = (job->n + COLUMNS - 1) / COLUMNS;
  job->copied = job->bj == 1 ? job->n / COLUMNS : 0; /* What lies well is read where it lies. */
  const long copies = job->panels - job->copied, copied = copies * job->k * COLUMNS;
  job->copies = copies ? aligned_alloc(64, copied * sizeof *job->copies) : NULL;
  if (copies && job->copies == NULL) return no_memory(frame);
  run_all(frame, copied < ALONE ? 1 : threads, copies, copy_panel, job);

  /* By rows, or by panels where there are few: then each part of B goes to one core. */
  const long wanted = threads * CHUNKS_PER_THREAD;
  long down = least(tiles, wanted), across = 1;
  if (tiles < job->panels) {
    across = least(job->panels, wanted);
    down = least(tiles, (2 * threads + across - 1) / across);
  }
  job->row_chunk = (tiles + down - 1) / down * ROWS;
  job->panel_chunk = (job->panels + across - 1) / across;
  job->by_rows = job->k * job->n <= NEAR;
  job->chunks_across = (job->panels + job->panel_chunk - 1) / job->panel_chunk;
  run_all(frame, threads, (job->m + job->row_chunk - 1) / job->row_chunk * job->chunks_across, make_chunk, job);
  free(job->copies);
  return NULL;
}

/* ---- What XLA calls --------------------------------------------------------------------------------------------- */

static XLA_FFI_Buffer *argument(const XLA_FFI_CallFrame *frame, int i) { return frame->args.args[i]; }
static XLA_FFI_Buffer *result(const XLA_FFI_CallFrame *frame, int i) { return frame->rets.rets[i]; }

/* Whether XLA only asks for which version this is written. */
static int is_question(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Extension_Base *extension = frame->extension_start;
  if (extension == NULL || extension->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

#ifndef UPDATE_RESULTS

/* (m, k) (k, n) -> (m, n) */
XLA_FFI_Error *product(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  const XLA_FFI_Buffer *a = argument(frame, 0), *b = argument(frame, 1), *c = result(frame, 0);
  const long m = a->dims[0], k = a->dims[1], n = b->dims[1];
  Job job = {a->data, b->data, c->data, m, n, k, .ai = k, .ak = 1, .bk = n, .bj = 1, .ci = n, .cj = 1};
  return run_job(frame, &job);
}

/* (m, k) (n, k) -> (m, n): the second one's rows are long and lie well, so it is A, and the first one is turned. */
XLA_FFI_Error *product_with_transposed(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  const XLA_FFI_Buffer *a = argument(frame, 0), *b = argument(frame, 1), *c = result(frame, 0);
  const long m = a->dims[0], k = a->dims[1], n = b->dims[0];
  Job job = {b->data, a->data, c->data, n, m, k, .ai = k, .ak = 1, .bk = 1, .bj = k, .ci = 1, .cj = n};
  return run_job(frame, &job);
}

#else

/* (k, m) (k, n), arrays of (m, n), numbers -> arrays of (m, n) */
XLA_FFI_Error *updated(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  const XLA_FFI_Buffer *a = argument(frame, 0), *b = argument(frame, 1);
  const long k = a->dims[0], m = a->dims[1], n = b->dims[1];
  float numbers[UPDATE_NUMBERS + 1];
  Job job = {a->data, b->data, NULL, m, n, k, .ai = 1, .ak = m, .bk = n, .bj = 1, .numbers = numbers};
  for (int i = 0; i < UPDATE_ARRAYS; i++) job.in[i] = argument(frame, 2 + i)->data;
  for (int i = 0; i < UPDATE_NUMBERS; i++) numbers[i] = *(const float *)argument(frame, 2 + UPDATE_ARRAYS + i)->data;
  for (int i = 0; i < UPDATE_RESULTS; i++) job.out[i] = result(frame, i)->data;
  return run_job(frame, &job);
}

#endif
