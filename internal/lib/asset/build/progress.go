// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progressInterval is the time between two messages about a running step.
const progressInterval = 15 * time.Second

// progress prints the progress of a build. It draws no bars, so that it is readable in log files
// too.
type progress struct {
	out         io.Writer
	clock       func() time.Time
	done, total int
}

// runStep calls work, and prints a message when it starts, periodically while it runs, and when it
// ends.
func (p *progress) runStep(name string, work func() error) error {
	p.done++
	label := fmt.Sprintf("[%d/%d] %s", p.done, p.total, name)
	fmt.Fprintf(p.out, "%s: building\n", label)
	start := p.clock()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				fmt.Fprintf(p.out, "%s: still building, %s\n", label, p.clock().Sub(start).Round(time.Second))
			}
		}
	})

	err := work()
	close(stop)
	wg.Wait()
	if err != nil {
		return err
	}

	fmt.Fprintf(p.out, "%s: done in %s\n", label, p.clock().Sub(start).Round(100*time.Millisecond))

	return nil
}

// skipStep counts a step that is cached.
func (p *progress) skipStep() { p.done++ }
