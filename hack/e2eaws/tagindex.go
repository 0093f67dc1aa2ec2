// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// tagIndex asks the Resource Groups Tagging API, which knows resources of all services by their tags. It shows kinds that
// the inventory does not know. It makes the only call of that service itself, so that the module needs no further SDK.
type tagIndex struct {
	account account
	client  *http.Client
	now     func() time.Time
}

// indexAnswer is what the Resource Groups Tagging API says.
type indexAnswer struct {
	// unknown are the ARNs of kinds that the inventory does not know.
	unknown []string
	// known is the number of ARNs of kinds that it knows. What their services no longer list was deleted: the API lists
	// deleted resources for a while.
	known int
}

// noIndexError is returned for an endpoint that does not have the service.
type noIndexError struct{ status int }

func (e noIndexError) Error() string {
	return fmt.Sprintf("the endpoint does not have it (HTTP status %d)", e.status)
}

// findResources returns the resources that have the tag of the run.
func (x tagIndex) findResources(ctx context.Context, id runID, kinds []resourceKind) (indexAnswer, error) {
	var answer indexAnswer
	for token := ""; ; {
		page, err := x.readPage(ctx, id, token)
		if err != nil {
			return answer, err
		}

		for _, mapping := range page.ResourceTagMappingList {
			if isKnownARN(mapping.ResourceARN, kinds) {
				answer.known++
			} else {
				answer.unknown = append(answer.unknown, mapping.ResourceARN)
			}
		}

		token = page.PaginationToken
		if token == "" {
			return answer, nil
		}
	}
}

// indexPage is an answer of GetResources.
type indexPage struct {
	PaginationToken        string
	ResourceTagMappingList []struct{ ResourceARN string }
}

// readPage calls GetResources.
func (x tagIndex) readPage(ctx context.Context, id runID, token string) (indexPage, error) {
	var page indexPage
	body, err := json.Marshal(map[string]any{
		"TagFilters":      []map[string]any{{"Key": runTag, "Values": []string{string(id)}}},
		"PaginationToken": token,
	})
	if err != nil {
		return page, err
	}

	request, err := x.newRequest(ctx, body)
	if err != nil {
		return page, err
	}

	answer, err := x.client.Do(request)
	if err != nil {
		return page, err
	}

	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return page, err
	}

	switch answer.StatusCode {
	case http.StatusOK:
		return page, json.Unmarshal(text, &page)
	case http.StatusNotFound:
		return page, noIndexError{answer.StatusCode}
	}

	return page, fmt.Errorf("HTTP status %d: %s", answer.StatusCode, firstLine(string(text)))
}

// newRequest returns the signed request of GetResources.
func (x tagIndex) newRequest(ctx context.Context, body []byte) (*http.Request, error) {
	region := x.account.cfg.Region
	url := x.account.endpoint
	if url == "" {
		url = "https://tagging." + region + "." + partition.OfRegion(region).DNSSuffix
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(url, "/")+"/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", "ResourceGroupsTaggingAPI_20170126.GetResources")
	credentials, err := x.account.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}

	hash := sha256.Sum256(body)
	err = v4.NewSigner().SignHTTP(ctx, credentials, request, hex.EncodeToString(hash[:]), "tagging", region, x.now())

	return request, err
}

// isKnownARN reports whether an ARN is of one of the kinds, or of a part of one.
func isKnownARN(arn string, kinds []resourceKind) bool {
	const fields = 6 // arn, partition, service, region, account, resource
	parts := strings.SplitN(arn, ":", fields)
	if len(parts) < fields {
		return false
	}

	kind := parts[2] + ":" + strings.FieldsFunc(parts[5]+"/", func(r rune) bool { return r == '/' || r == ':' })[0]
	if parts[2] == "s3" {
		kind = "s3:" // an ARN of S3 has no type
	}

	// Rules are deleted with their group, listeners with their load balancer.
	if kind == "ec2:security-group-rule" || kind == "elasticloadbalancing:listener" {
		return true
	}

	for _, k := range kinds {
		if k.arn == kind {
			return true
		}
	}

	return false
}
