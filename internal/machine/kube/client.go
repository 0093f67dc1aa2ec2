// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// ErrNotFound is wrapped by errors of requests for an object that does not exist (HTTP 404).
var ErrNotFound = errors.New("not found")

// ErrConflict is wrapped by errors of writes to an object that was changed since it was read (HTTP
// 409).
var ErrConflict = errors.New("changed by another client")

// Client is a Kubernetes API client for plain JSON. client-go would double the agent's size. Errors
// wrap ErrNotFound or ErrConflict where the API reports them. It is safe for concurrent use.
type Client struct {
	// Server is the URL of the API server.
	Server string
	// HTTP is the client, which authenticates and has a timeout.
	HTTP *http.Client
}

// FieldManager is the field manager of all server-side applies by Slipway.
const FieldManager = "slipway"

// Get decodes the object at path into out.
func (c Client) Get(ctx context.Context, path string, out any) error {
	body, err := c.Do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}

	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}

	return nil
}

// Delete deletes the object at path. It succeeds if the object does not exist.
func (c Client) Delete(ctx context.Context, path string) error {
	_, err := c.Do(ctx, http.MethodDelete, path, "", nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	return err
}

// Apply applies an object (JSON or YAML) server-side and takes ownership of its fields from other
// managers. The API server writes nothing if nothing changes.
func (c Client) Apply(ctx context.Context, path string, object []byte) error {
	_, err := c.Do(
		ctx,
		http.MethodPatch,
		path+"?fieldManager="+FieldManager+"&force=true",
		"application/apply-patch+yaml",
		object,
	)

	return err
}

// MergePatch patches the object at path with a JSON merge patch (RFC 7396).
func (c Client) MergePatch(ctx context.Context, path string, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch %s: %w", path, err)
	}

	_, err = c.Do(
		ctx,
		http.MethodPatch,
		path+"?fieldManager="+FieldManager,
		"application/merge-patch+json",
		body,
	)

	return err
}

// StrategicMergePatch patches the object at path with a strategic merge patch: Kubernetes merges lists, such as
// conditions, by the key of their items.
func (c Client) StrategicMergePatch(ctx context.Context, path string, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch %s: %w", path, err)
	}

	_, err = c.Do(
		ctx,
		http.MethodPatch,
		path+"?fieldManager="+FieldManager,
		"application/strategic-merge-patch+json",
		body,
	)

	return err
}

// Do sends one request and returns the body of a 2xx response. The kind is the Content-Type of
// body. Other responses are errors with the API's message.
func (c Client) Do(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", strings.ToLower(method), path, err)
	}

	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}

	req.Header.Set("Accept", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", strings.ToLower(method), path, err)
	}

	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", strings.ToLower(method), path, err)
	}

	if resp.StatusCode < 300 {
		return answer, nil
	}

	return nil, fmt.Errorf("%s %s: %w", strings.ToLower(method), path, statusError(resp, answer))
}

// EventDeleted is the type of the event of an object that was deleted.
const EventDeleted = "DELETED"

// WatchEvent is what a watch reports of one object.
type WatchEvent struct {
	// Type is ADDED, MODIFIED or DELETED.
	Type string `json:"type"`
	// Object is the object after the event, or before its deletion.
	Object json.RawMessage `json:"object"`
}

// Watch calls each with every object that a watch reports, until the server ends the watch or ctx ends. The client
// must have no timeout.
func (c Client) Watch(ctx context.Context, path string, each func(object json.RawMessage)) error {
	return c.WatchEvents(ctx, path, func(event WatchEvent) error {
		if event.Type != EventDeleted {
			each(event.Object)
		}

		return nil
	})
}

// WatchEvents calls each with every event of a watch, until it returns an error, the server ends the watch or ctx ends.
// The client must have no timeout.
func (c Client) WatchEvents(ctx context.Context, path string, each func(event WatchEvent) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server+path, nil)
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}

	req.Header.Set("Accept", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}

	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("watch %s: %s", path, resp.Status)
	}

	decoder := json.NewDecoder(resp.Body)
	for {
		var event WatchEvent
		err := decoder.Decode(&event)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watch %s: %w", path, err)
		case event.Type == "ERROR":
			return fmt.Errorf("watch %s: %s", path, event.Object)
		}

		if err := each(event); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
}

// StatusError is an answer of the API that is not of class 2xx.
type StatusError struct {
	// Code is the HTTP status code.
	Code int
	// Message is the API's.
	Message string
	// Body is the answer, usually an object of kind Status.
	Body []byte
}

// Error implements error.
func (e *StatusError) Error() string {
	return e.Message
}

func statusError(resp *http.Response, answer []byte) error {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &status) != nil || status.Message == "" {
		status.Message = resp.Status
	}

	answered := &StatusError{Code: resp.StatusCode, Message: status.Message, Body: answer}

	switch resp.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", answered, ErrNotFound)
	case http.StatusConflict:
		return fmt.Errorf("%w: %w", answered, ErrConflict)
	default:
		return answered
	}
}
