/* Caffe inside another process, Python's or Spark's: a solver that is fed from
 * memory. tensorlightning.caffe.Solver is the one caller.
 *
 *   tl_caffe_solver* s = tl_caffe_create(solver, net, 0, why, size);
 *   tl_caffe_feed(s, 0, "", images, labels, 640, why, size);
 *   tl_caffe_step(s, 10, &loss, why, size);
 *   tl_caffe_snapshot(s, "model.caffemodel", why, size);
 *   tl_caffe_close(s, why, size);
 *   tl_caffe_free(s);
 *
 * Functions that return an int return 0, or -1 and a sentence in `error`. None
 * of their own mistakes ends the process, but Caffe's fatal checks do: so
 * tl_caffe_check is to be called in a process that may die, before anything
 * else is done with the same texts.
 *
 * `test`: 0 means the net that is trained; 1 the same text's net of phase TEST,
 * which has the same weights in the same memory. Calls on a solver may come
 * from any thread, one at a time but for tl_caffe_interrupt. All numbers are
 * float32. */
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_DRIVER_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TL_CAFFE_MAX_AXES 32 /* As Caffe has it. */

/* NOLINTBEGIN(modernize-use-using): C has none. */
typedef struct tl_caffe_solver tl_caffe_solver;

/* Lives as long as the solver, until tl_caffe_free. */
typedef struct {
  const char* name; /* A parameter's or input's: that of its layer. */
  int32_t index;    /* A parameter's: which one of its layer. */
  int32_t axes;
  int64_t shape[TL_CAFFE_MAX_AXES];
  float* data; /* NULL: an input's, which is fed. */
} tl_caffe_array;
/* NOLINTEND(modernize-use-using) */

/* Builds the net, gives it some numbers and trains or, with `test`, tests one
 * batch. Joins no job. Dies in Caffe's hands where Caffe has a fatal check. */
int tl_caffe_check(const char* solver_text, const char* net_text, int test,
                   char* error, size_t error_size);

/* The net replaces what the solver says about nets. Its tests and snapshots are
 * left out: they are the caller's. `alone`: tensorlightning_param is read, and
 * not obeyed. NULL: an error. */
tl_caffe_solver* tl_caffe_create(const char* solver_text, const char* net_text,
                                 int alone, char* error, size_t error_size);

/* Builds the net of phase TEST, unless it is there. */
int tl_caffe_create_test(tl_caffe_solver* solver, char* error,
                         size_t error_size);

/* For a MemoryData layer ("": the only one): `count` examples, a multiple of
 * its batch, in the order (example, channel, height, width), and as many
 * labels. Not copied: the memory must live until it is fed again, or the solver
 * is freed. */
int tl_caffe_feed(tl_caffe_solver* solver, int test, const char* layer,
                  const float* data, const float* labels, int64_t count,
                  char* error, size_t error_size);

/* So many iterations, fewer if interrupted; the mean of their losses. A loss
 * that is no number is an error, and leaves the weights as they were. */
int tl_caffe_step(tl_caffe_solver* solver, int iterations, double* loss,
                  char* error, size_t error_size);
int tl_caffe_iteration(const tl_caffe_solver* solver);

/* Before the first step: joins its job, if it has one, instead of with that
 * step; the net then holds the job's weights. Iterations are counted from
 * `iteration` on: so a training that was begun elsewhere goes on with its
 * learning rate. */
int tl_caffe_join(tl_caffe_solver* solver, int iteration, char* error,
                  size_t error_size);

/* What it has sent and received, as JSON; "{}" before it has joined. Lives
 * until the next call. */
const char* tl_caffe_statistics(tl_caffe_solver* solver);

/* From any thread, at any time: the call under way, and those to come, end
 * soon, until this is called with 0. */
void tl_caffe_interrupt(tl_caffe_solver* solver, int on);

/* One batch through the net of phase TEST. */
int tl_caffe_forward_test(tl_caffe_solver* solver, char* error,
                          size_t error_size);

/* The number-th, from 0 on. 1: there is none. Parameters that are not trained,
 * such as statistics, are among them. */
int tl_caffe_parameter(tl_caffe_solver* solver, int number,
                       tl_caffe_array* array);
int tl_caffe_input(tl_caffe_solver* solver, int test, int number,
                   tl_caffe_array* array);
int tl_caffe_output(tl_caffe_solver* solver, int test, int number,
                    tl_caffe_array* array);
int tl_caffe_blob(tl_caffe_solver* solver, int test, const char* name,
                  tl_caffe_array* array);

/* Writes a .caffemodel, whole or not at all. */
int tl_caffe_snapshot(tl_caffe_solver* solver, const char* path, char* error,
                      size_t error_size);

/* Of a job of several workers: a last exchange; the net then holds what all
 * have learned. Happens by itself after max_iter iterations. */
int tl_caffe_finish(tl_caffe_solver* solver, char* error, size_t error_size);

/* Leaves the job, and trains no more. Arrays stay as they are. */
int tl_caffe_close(tl_caffe_solver* solver, char* error, size_t error_size);
void tl_caffe_free(tl_caffe_solver* solver);

#ifdef __cplusplus
}
#endif

#endif /* TENSORLIGHTNING_CAFFE_LAYERS_DRIVER_H_ */
