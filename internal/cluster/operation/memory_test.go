// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// memory is a store in memory whose writes can fail, lose their response, or be delayed by a callback.
type memory struct {
	mu      sync.Mutex
	objects map[string]store.Object
	version int

	refuse, forget int            // of the next writes: fail these before, or after they took effect
	before         func(k string) // called before each write
}

var errLink = errors.New("connection reset")

func newMemory() *memory { return &memory{objects: map[string]store.Object{}} }

// fail makes the next writes fail before they take effect.
func (m *memory) fail(writes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = writes
}

func (m *memory) URL() string { return "memory://" }

func (m *memory) Get(_ context.Context, key string) (store.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return o, fmt.Errorf("read %s: %w", key, store.ErrNotFound)
	}
	return o, nil
}

func (m *memory) write(key string, body []byte, may func(have store.Object, there bool) bool) (string, error) {
	if m.before != nil {
		m.before(key)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse > 0 {
		m.refuse--
		return "", errLink
	}
	have, there := m.objects[key]
	if !may(have, there) {
		return "", fmt.Errorf("write %s: %w", key, store.ErrConflict)
	}
	m.version++
	etag := strconv.Itoa(m.version)
	m.objects[key] = store.Object{Key: key, Body: slices.Clone(body), ETag: etag}
	if m.forget > 0 {
		m.forget--
		return "", errLink
	}
	return etag, nil
}

func (m *memory) Put(_ context.Context, key string, body []byte) (string, error) {
	return m.write(key, body, func(store.Object, bool) bool { return true })
}

func (m *memory) Create(_ context.Context, key string, body []byte) (string, error) {
	return m.write(key, body, func(_ store.Object, there bool) bool { return !there })
}

func (m *memory) Update(_ context.Context, key string, body []byte, etag string) (string, error) {
	return m.write(key, body, func(o store.Object, there bool) bool { return there && o.ETag == etag })
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

func (m *memory) List(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.objects)), func(k string) bool { return !strings.HasPrefix(k, prefix) }), nil
}
