// Command bench measures seedbed beside what people use today, in ratios: image imports beside ctr on one containerd,
// placing a tree beside systemd-tmpfiles. Its bars are those that the project has set itself.
//
// Both programs run alternately in one run, from equally warm caches, into a store that was emptied before, and the
// start of the process counts. What is printed is the median over the rounds. A bar that is missed fails the run only
// with -check; what could not be measured always does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var (
	errUsage      = errors.New("the command line is wrong")
	errMissed     = errors.New("a bar is missed")
	errUnmeasured = errors.New("something was not measured")
)

// options are the command line.
type options struct {
	run     *regexp.Regexp // rows whose id it matches
	rounds  int            // runs of each program in each row
	quick   bool           // a tenth of the corpus
	check   bool           // a missed bar is an error
	list    bool           // print the rows' ids and stop
	output  string         // "markdown" or "json"
	dir     string         // corpus and stores
	seedbed string         // the program; "" builds it
	from    string         // a report that was measured before; "" measures
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{run: regexp.MustCompile("")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("run", "only the rows whose id matches this `regexp`", func(s string) (err error) {
		o.run, err = regexp.Compile(s)
		return err
	})
	f.IntVar(&o.rounds, "rounds", 5, "`number` of runs of each program in each row")
	f.BoolVar(&o.quick, "quick", false, "a tenth of the corpus: tells whether it works, not how fast it is")
	f.BoolVar(&o.check, "check", false, "exit 1 when a bar is missed")
	f.BoolVar(&o.list, "list", false, "print the rows' ids")
	f.StringVar(&o.output, "o", "markdown", "output as `markdown|json`")
	f.StringVar(&o.dir, "dir", os.Getenv("BENCH_DIR"), "`directory` for the corpus and the stores (BENCH_DIR; default: in the user's cache)")
	f.StringVar(&o.seedbed, "seedbed", "", "measure this `program` instead of building it")
	f.StringVar(&o.from, "from", "", "print this `report`, a file of -o json, instead of measuring")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return o, err
	case err != nil:
		return o, errUsage // flag has said it
	case f.NArg() > 0 || o.rounds < 1 || o.output != "markdown" && o.output != "json":
		f.Usage()
		return o, errUsage
	}
	return o, o.defaultDir()
}

func (o *options) defaultDir() error {
	if o.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		o.dir = filepath.Join(cache, "seedbed-bench")
	}
	var err error
	o.dir, err = filepath.Abs(o.dir)
	return err
}

// run measures what args ask for and prints the table to stdout, what it is at to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) == 2 && args[0] == commandJournalSend {
		return journalSend(args[1])
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.from != "" {
		return show(o, stdout)
	}
	b := &bench{options: o, log: stderr}
	rows := b.selected()
	if o.list {
		for _, r := range rows {
			fmt.Fprintln(stdout, r.id)
		}
		return nil
	}
	if err := b.open(ctx, rows); err != nil {
		return errors.Join(err, b.close())
	}
	defer func() { err = errors.Join(err, b.close()) }()
	rep, err := b.measureAll(ctx, rows)
	if err != nil {
		return err
	}
	return rep.conclude(o, stdout)
}

// show concludes from a report that was measured before.
func show(o options, stdout io.Writer) error {
	data, err := os.ReadFile(o.from)
	if err != nil {
		return err
	}
	var rep report
	if err := json.Unmarshal(data, &rep); err != nil {
		return fmt.Errorf("read report %q: %w", o.from, err)
	}
	return rep.conclude(o, stdout)
}

// conclude prints the report and returns its verdict.
func (r *report) conclude(o options, stdout io.Writer) error {
	if err := r.write(stdout, o.output); err != nil {
		return err
	}
	return r.verdict(o.check)
}
