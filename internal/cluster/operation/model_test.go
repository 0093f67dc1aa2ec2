// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// client is one operator: a clock that is off by a constant, and perhaps a lease. A client that is killed
// forgets its lease; one that is stopped keeps it and does nothing until it continues.
type client struct {
	desk  operation.Coordinator
	name  string
	lease *operation.Lease
}

// TestLockModel lets two or three clients with clocks that differ as much as is allowed take, renew, release,
// lose and seize a lock, over a store that loses requests and answers. Whatever they do: tokens rise, at most
// one of them may act unless a person has unlocked, and no client writes state after another one has taken the
// lock.
func TestLockModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, store: newMemory(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		skew := operation.MaxClockSkew(operation.DefaultLeaseDuration)
		for i := range rapid.IntRange(2, 3).Draw(t, "clients") {
			off := rapid.SampledFrom([]time.Duration{0, skew / 3, skew}).Draw(t, "skew") // so any two differ by skew at most
			m.clients = append(m.clients, &client{name: fmt.Sprint("client-", i), desk: operation.Coordinator{
				Store: m.store, Cluster: "demo", Now: func() time.Time { return m.now.Add(off) },
			}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": m.acquire, "seize": m.seize, "renew": m.renew, "release": m.release, "kill": m.kill,
			"write": m.write, "time": m.time, "faults": m.faults, "": m.invariant,
		})
	})
}

type model struct {
	t       *rapid.T
	store   *memory
	now     time.Time
	clients []*client
	token   int64 // the highest that anybody got
	seized  bool  // the last change of hands was a person's doing
	last    int64 // token of the last guarded write
}

func (m *model) any(t *rapid.T) *client {
	return m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(t, "client")]
}

func who(name string) operation.Initiator {
	return operation.Initiator{Owner: name, PID: 1, Operation: "apply", Command: "slipway apply demo"}
}

func (m *model) got(t *rapid.T, c *client, l *operation.Lease) {
	if l.Token() <= m.token {
		t.Fatalf("%s got token %d after %d", c.name, l.Token(), m.token)
	}
	m.token, c.lease = l.Token(), l
}

func (m *model) acquire(t *rapid.T) {
	c := m.any(t)
	if c.lease != nil {
		return
	}
	l, err := c.desk.Acquire(t.Context(), who(c.name))
	var held operation.LockHeldError
	switch {
	case err == nil:
		m.got(t, c, l)
		m.seized = m.seized && m.stillActing(c)
	case errors.As(err, &held):
		if !c.desk.Now().Before(held.Holder.FreeAt()) {
			t.Fatalf("refused at %s though the lease ended: %v", c.desk.Now(), err)
		}
	case !errors.Is(err, errLink):
		t.Fatal(err)
	}
	m.sync(t)
}

// sync takes note of a token that was given by a write whose answer got lost.
func (m *model) sync(t *rapid.T) {
	l, err := m.clients[0].desk.ReadLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.token = max(m.token, l.Token)
}

func (m *model) stillActing(but *client) bool {
	for _, c := range m.clients {
		if c != but && c.lease != nil && c.lease.Err() == nil {
			return true
		}
	}
	return false
}

func (m *model) seize(t *rapid.T) {
	c := m.any(t)
	now, err := c.desk.ReadLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.lease != nil || now.Holder == nil {
		return
	}
	l, err := c.desk.ForceAcquire(t.Context(), who(c.name), now.Token)
	if err == nil {
		m.got(t, c, l)
		m.seized = true
	} else if !errors.Is(err, errLink) {
		t.Fatal(err)
	}
	m.sync(t)
}

func (m *model) renew(t *rapid.T) {
	c := m.any(t)
	if c.lease == nil {
		return
	}
	if err := c.lease.Renew(t.Context()); err == nil && c.lease.Token() != m.token {
		t.Fatalf("%s renewed token %d though %d was given", c.name, c.lease.Token(), m.token)
	}
}

func (m *model) release(t *rapid.T) {
	c := m.any(t)
	if c.lease == nil {
		return
	}
	_ = c.lease.Release(t.Context())
	c.lease = nil
}

func (m *model) kill(t *rapid.T) { m.any(t).lease = nil }

func (m *model) write(t *rapid.T) {
	c := m.any(t)
	if c.lease == nil {
		return
	}
	s := c.lease.GuardStore(m.store)
	_, err := s.Put(t.Context(), "demo/cluster.yaml", []byte(strconv.FormatInt(c.lease.Token(), 10)))
	o, getErr := m.store.Get(t.Context(), "demo/cluster.yaml")
	if errors.Is(getErr, store.ErrNotFound) {
		return
	}
	by, parseErr := strconv.ParseInt(string(o.Body), 10, 64)
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	if by < m.last {
		t.Fatalf("token %d wrote after token %d had", by, m.last)
	}
	m.last = by
	if err == nil && c.lease.Token() != m.token {
		t.Fatalf("%s wrote with token %d though %d was given", c.name, c.lease.Token(), m.token)
	}
}

func (m *model) time(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 80).Draw(t, "passes")) * time.Second)
}

func (m *model) faults(t *rapid.T) {
	m.store.refuse, m.store.forget = rapid.IntRange(0, 2).Draw(t, "refuse"), rapid.IntRange(0, 2).Draw(t, "forget")
}

// invariant holds after every action.
func (m *model) invariant(t *rapid.T) {
	acting := 0
	for _, c := range m.clients {
		if c.lease != nil && c.lease.Err() == nil {
			acting++
		}
	}
	if acting > 1 && !m.seized {
		t.Fatalf("%d clients may act at once", acting)
	}
}
