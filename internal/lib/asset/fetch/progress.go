// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const megabyte = 1e6

// progress counts what was downloaded and prints a line for each. Safe for concurrent use.
type progress struct {
	out   io.Writer
	clock func() time.Time
	total int

	mu         sync.Mutex
	finished   int
	downloaded int
	bytes      int64
}

// skip counts something that is there already.
func (p *progress) skip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
}

// done counts a download of size bytes and prints it.
func (p *progress) done(what string, size int64, elapsed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
	p.downloaded++
	p.bytes += size
	fmt.Fprintf(
		p.out,
		"[%d/%d] %s: %.1f MB in %s\n",
		p.finished,
		p.total,
		what,
		float64(size)/megabyte,
		elapsed.Round(100*time.Millisecond),
	)
}

// report prints the result of the run.
func (p *progress) report(r Result) {
	if r.Downloaded == 0 {
		fmt.Fprintf(p.out, "assets: all %d are there, nothing to download (%s)\n", p.total, r.Elapsed.Round(time.Millisecond))
		return
	}

	fmt.Fprintf(
		p.out,
		"assets: downloaded %d of %d, %.0f MB in %s; catalogue %s\n",
		r.Downloaded,
		p.total,
		float64(r.Bytes)/megabyte,
		r.Elapsed.Round(100*time.Millisecond),
		r.Catalog,
	)
}
