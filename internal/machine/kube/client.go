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

// ErrNotFound says that the API has no such object.
var ErrNotFound = errors.New("not found")

// ErrConflict says that the object changed meanwhile.
var ErrConflict = errors.New("changed by somebody else")

// Client speaks to a Kubernetes API with plain JSON. client-go would double the agent's size for five verbs.
type Client struct {
	// Server is the API's URL.
	Server string
	HTTP   *http.Client
}

// FieldManager is the name of the field manager of everything that Slipway applies.
const FieldManager = "slipway"

// Get reads the object at path into out.
func (c Client) Get(ctx context.Context, path string, out any) error {
	body, err := c.Do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}

	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	return nil
}

// Delete removes the object at path; that there is none is no error.
func (c Client) Delete(ctx context.Context, path string) error {
	_, err := c.Do(ctx, http.MethodDelete, path, "", nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	return err
}

// Apply applies an object (JSON or YAML) server-side: it becomes what it says in the fields it names, and nothing is
// written if it is that already.
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

// MergePatch patches the object at path with RFC 7396.
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

// Do sends one request and returns the body of a good answer.
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

	defer resp.Body.Close() //nolint:errcheck // read below
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", strings.ToLower(method), path, err)
	}

	if resp.StatusCode < 300 {
		return answer, nil
	}

	return nil, fmt.Errorf("%s %s: %w", strings.ToLower(method), path, statusError(resp, answer))
}

func statusError(resp *http.Response, answer []byte) error {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &status) != nil || status.Message == "" {
		status.Message = resp.Status
	}

	switch resp.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w", status.Message, ErrNotFound)
	case http.StatusConflict:
		return fmt.Errorf("%s: %w", status.Message, ErrConflict)
	default:
		return errors.New(status.Message)
	}
}
