// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"context"
	"sync"
	"time"
)

const (
	// maxQuestions is how many callers of each trust are asked about at once: the gate must not be
	// a way to load the API server, and none of them keeps out those with more trust.
	maxQuestions = 2
	// maxCallersOfAccount is how many requests of an account are asked about or wait for that.
	// Prometheus reads all sources of a machine at once.
	maxCallersOfAccount = 16
	// maxCallers is how many requests of all accounts together are asked about or wait.
	maxCallers = 256
	// maxWait is how long a request waits until it is asked about.
	maxWait = 5 * time.Second
)

// trust is what is known of a caller before the API server is asked.
type trust int

const (
	// unverified: the keys of the API server are not known, so that anybody can have made the
	// token.
	unverified trust = iota
	// signed: the API server has signed the token for an account.
	signed
	// accepted: the account or the token was allowed to read a short time ago.
	accepted
)

// places are the places for questions to the API server. It is safe for concurrent use.
type places struct {
	busy map[trust]chan struct{}

	mu      sync.Mutex
	all     int
	callers map[queue]int
}

// queue is who waits together.
type queue struct {
	// account is empty if it is not known who signed the token.
	account string
	trust   trust
}

func newPlaces() *places {
	return &places{
		busy: map[trust]chan struct{}{
			unverified: make(chan struct{}, maxQuestions),
			signed:     make(chan struct{}, maxQuestions),
			accepted:   make(chan struct{}, maxQuestions),
		},
		callers: map[queue]int{},
	}
}

// take waits for a place. The caller must call the function that it returns. The error is ErrBusy
// if too many wait, also after some time; or that of the context.
func (p *places) take(ctx context.Context, from queue) (leave func(), err error) {
	if !p.enter(from) {
		return nil, ErrBusy
	}

	place := p.busy[from.trust]
	patience := time.NewTimer(maxWait)
	defer patience.Stop()

	select {
	case place <- struct{}{}:
		return func() {
			<-place
			p.leave(from)
		}, nil
	case <-patience.C:
		err = ErrBusy
	case <-ctx.Done():
		err = ctx.Err()
	}

	p.leave(from)

	return nil, err
}

// enter reports whether a request may wait. Accounts that were accepted are few, and are not
// counted with the others.
func (p *places) enter(from queue) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.callers[from] >= maxCallersOfAccount || from.trust != accepted && p.all >= maxCallers {
		return false
	}

	p.callers[from]++
	if from.trust != accepted {
		p.all++
	}

	return true
}

func (p *places) leave(from queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.callers[from]--; p.callers[from] == 0 {
		delete(p.callers, from)
	}

	if from.trust != accepted {
		p.all--
	}
}
