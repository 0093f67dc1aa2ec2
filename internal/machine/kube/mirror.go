// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Mirror keeps a copy of all objects of a resource, decoded as T. Run keeps it up to date; the other methods may be called
// concurrently with it.
type Mirror[T any] struct {
	// Client reads the objects.
	Client Client
	// Path of the resource, such as /api/v1/pods, with parameters such as a field selector.
	Path string
	// Changed is called after each change, and must not block.
	Changed func()
	// Wait waits until a time has passed or the context ends.
	Wait func(context.Context, time.Duration) error

	mu      sync.Mutex
	objects map[string]T // by namespace and name
	isRead  bool
}

const (
	// watchSeconds is how long the API server keeps a watch.
	watchSeconds = "300"
	// mirrorBackoff is the time between two attempts to read.
	mirrorBackoff = time.Second
	// maxMirrorBackoff is the longest time between them.
	maxMirrorBackoff = 30 * time.Second
)

// objectHead holds what every object has.
type objectHead struct {
	Metadata struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

func (h objectHead) key() string { return h.Metadata.Namespace + "/" + h.Metadata.Name }

// Run lists and watches the objects until ctx ends. After an error, and when the server ends the watch, it lists them again.
func (m *Mirror[T]) Run(ctx context.Context) error {
	patient := *m.Client.HTTP
	patient.Timeout = 0
	watcher := Client{Server: m.Client.Server, HTTP: &patient}
	backoff := mirrorBackoff
	for {
		version, err := m.list(ctx)
		if err == nil {
			backoff = mirrorBackoff
			query := "watch=1&timeoutSeconds=" + watchSeconds + "&resourceVersion=" + version
			err = watcher.WatchEvents(ctx, m.Path+m.separator()+query, m.apply)
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err == nil {
			continue
		}

		if err := m.Wait(ctx, backoff); err != nil {
			return err
		}

		backoff = min(2*backoff, maxMirrorBackoff)
	}
}

// separator returns what is between the path and a parameter.
func (m *Mirror[T]) separator() string {
	if strings.Contains(m.Path, "?") {
		return "&"
	}

	return "?"
}

// list reads all objects and returns the version of the list.
func (m *Mirror[T]) list(ctx context.Context) (string, error) {
	body, err := m.Client.Do(ctx, http.MethodGet, m.Path, "", nil)
	if err != nil {
		return "", err
	}

	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("decode %s: %w", m.Path, err)
	}

	objects := map[string]T{}
	for _, item := range list.Items {
		var head objectHead
		var object T
		if err := json.Unmarshal(item, &head); err != nil {
			return "", fmt.Errorf("decode an object of %s: %w", m.Path, err)
		}

		if err := json.Unmarshal(item, &object); err != nil {
			return "", fmt.Errorf("decode %s of %s: %w", head.key(), m.Path, err)
		}

		objects[head.key()] = object
	}

	m.mu.Lock()
	m.objects = objects
	m.isRead = true
	m.mu.Unlock()
	m.Changed()

	return list.Metadata.ResourceVersion, nil
}

// apply carries an event out. An error ends the watch.
func (m *Mirror[T]) apply(event WatchEvent) error {
	var head objectHead
	var object T
	if err := json.Unmarshal(event.Object, &head); err != nil {
		return fmt.Errorf("decode an object of %s: %w", m.Path, err)
	}

	if err := json.Unmarshal(event.Object, &object); err != nil {
		return fmt.Errorf("decode %s of %s: %w", head.key(), m.Path, err)
	}

	m.mu.Lock()
	if event.Type == EventDeleted {
		delete(m.objects, head.key())
	} else {
		m.objects[head.key()] = object
	}
	m.mu.Unlock()
	m.Changed()

	return nil
}

// Objects returns a copy of the objects in no order, and whether they have been read once.
func (m *Mirror[T]) Objects() ([]T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	out := make([]T, 0, len(m.objects))
	for _, o := range m.objects {
		out = append(out, o)
	}

	return out, m.isRead
}
