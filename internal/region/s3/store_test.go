// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// storedBucket has a bucket that was stored before the service used a state.Store: with versions, a delete
// marker, settings and an upload in progress.
const storedBucket = "testdata/stored"

// TestStoredBucketLoads: buckets on disk must load in later versions, and be saved in the same format, except
// that versions move from the index to files of their own.
func TestStoredBucketLoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(storedBucket)); err != nil {
		t.Fatal(err)
	}

	c, _, _ := serve(t, dir)
	if got := get(t, c, "k"); got != "two" {
		t.Errorf("the current version is %q, want two", got)
	}

	if got := get(t, c, "deleted"); got != "NoSuchKey" {
		t.Errorf("a deleted key: %q", got)
	}

	name := aws.String("b-1")
	versions, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: name})
	if err != nil || len(versions.Versions) != 3 || len(versions.DeleteMarkers) != 1 {
		t.Errorf("versions: %+v, %v; want 3 and a delete marker", versions, err)
	}

	uploads, err := c.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: name})
	if err != nil || len(uploads.Uploads) != 1 || *uploads.Uploads[0].Key != "big" {
		t.Fatalf("uploads: %+v, %v; want one of key big", uploads, err)
	}

	enableVersioning(t, c) // saves the index without another change
	var want map[string]any
	if err := json.Unmarshal([]byte(readText(t, filepath.Join(storedBucket, "b-1", "index.json"))), &want); err != nil {
		t.Fatal(err)
	}

	delete(want, "Versions")
	var saved map[string]any
	if err := json.Unmarshal([]byte(readText(t, filepath.Join(dir, "b-1", "index.json"))), &saved); err != nil {
		t.Fatal(err)
	}

	if d := cmp.Diff(want, saved); d != "" {
		t.Error(d)
	}

	c, _, _ = serve(t, dir)
	again, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: name})
	if err != nil {
		t.Fatal(err)
	}

	if d := cmp.Diff(versions.Versions, again.Versions, cmpopts.IgnoreUnexported(types.ObjectVersion{}, types.Owner{})); d != "" {
		t.Errorf("the versions after a restart: %s", d)
	}
}

// TestFailedSaveIsRetried: versions that could not be saved are saved by the next request, even by one that
// only reads. Otherwise a restart would lose the change.
func TestFailedSaveIsRetried(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _, _ := serve(t, dir)
	bucket(t, c)
	unblock := blockVersions(t, dir)
	if _, err := put(t, c, "k", "one"); err == nil {
		t.Fatal("the versions were not saved, but the write succeeded")
	}

	if got := get(t, c, "k"); got != "one" {
		t.Errorf("a read while saves fail: %q", got)
	}

	unblock()
	get(t, c, "other")
	c, _, _ = serve(t, dir)
	if got := get(t, c, "k"); got != "one" {
		t.Errorf("after a restart: %q, want the object whose save was retried", got)
	}
}

// blockVersions puts a file in the place of the directory with the versions of bucket b-1, so that none can be
// saved, and returns the function that removes it.
func blockVersions(t *testing.T, dir string) func() {
	t.Helper()
	path := filepath.Join(dir, "b-1", "versions")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWriteSavesOneKey: a write saves the versions of its key, and neither the index nor other keys. The state
// of a region with thousands of objects would otherwise be written at each of them.
func TestWriteSavesOneKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _, _ := serve(t, dir)
	bucket(t, c)
	if _, err := put(t, c, "a", "one"); err != nil {
		t.Fatal(err)
	}

	before := savedFiles(t, dir)
	if _, err := put(t, c, "b", "two"); err != nil {
		t.Fatal(err)
	}

	after := savedFiles(t, dir)
	if len(after) != len(before)+1 {
		t.Errorf("files with state: %d, then %d; want one more", len(before), len(after))
	}

	for path, file := range before {
		if !os.SameFile(file, after[path]) {
			t.Errorf("%s was written again", path)
		}
	}
}

// savedFiles returns the files with state of bucket b-1 by path. A file that is written again is another one.
func savedFiles(t *testing.T, dir string) map[string]os.FileInfo {
	t.Helper()
	files := map[string]os.FileInfo{}
	for _, pattern := range []string{"b-1/index.json", "b-1/versions/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}

		for _, path := range paths {
			if files[path], err = os.Stat(path); err != nil {
				t.Fatal(err)
			}
		}
	}

	return files
}

// TestDeletedBucketStaysDeleted: the retry of a failed save must not bring a deleted bucket back.
func TestDeletedBucketStaysDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _, _ := serve(t, dir)
	bucket(t, c)
	index := filepath.Join(dir, "b-1", "index.json")
	if err := os.Remove(index); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(index, 0o700); err != nil {
		t.Fatal(err)
	}

	name := aws.String("b-1")
	_, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: name, Key: name})
	if err == nil {
		t.Fatal("the index was not saved, but the upload was created")
	}

	blockVersions(t, dir)
	if _, err := put(t, c, "k", "one"); err == nil {
		t.Fatal("the versions were not saved, but the write succeeded")
	}

	if _, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: name, Key: aws.String("k")}); err == nil {
		t.Fatal("the versions were not saved, but the deletion succeeded")
	}

	if _, err := c.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: name}); err != nil {
		t.Fatal(err)
	}

	get(t, c, "k")
	if _, err := os.Stat(filepath.Dir(index)); !os.IsNotExist(err) {
		t.Errorf("the bucket's folder after its deletion: %v", err)
	}
}

// TestReadersDoNotWait: requests are answered while a client is slow to read a body.
func TestReadersDoNotWait(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	body := strings.Repeat("x", 32<<20) // more than the buffers of a connection take
	for key, text := range map[string]string{"large": body, "small": "s"} {
		if _, err := put(t, c, key, text); err != nil {
			t.Fatal(err)
		}
	}

	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("b-1"), Key: aws.String("large")})
	if err != nil {
		t.Fatal(err)
	}

	defer out.Body.Close()
	requireAnswers(t, c)
	if n, err := io.Copy(io.Discard, out.Body); err != nil || n != int64(len(body)) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// TestJoinDoesNotBlock: requests are answered while the parts of an upload are copied into one file.
func TestJoinDoesNotBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _, _ := serve(t, dir)
	bucket(t, c)
	if _, err := put(t, c, "small", "s"); err != nil {
		t.Fatal(err)
	}

	name := aws.String("b-1")
	key := aws.String("big")
	up, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: name, Key: key})
	if err != nil {
		t.Fatal(err)
	}

	part, err := c.UploadPart(t.Context(), &s3.UploadPartInput{
		Bucket:     name,
		Key:        key,
		UploadId:   up.UploadId,
		PartNumber: aws.Int32(1),
		Body:       strings.NewReader("part"),
	})
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "b-1", partFile(t, dir, *up.UploadId))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	// The copy of a named pipe waits until the test writes to it.
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}

	var completed atomic.Bool
	done := make(chan error, 1)
	go func() {
		_, err := c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{
			Bucket:   name,
			Key:      key,
			UploadId: up.UploadId,
			MultipartUpload: &types.CompletedMultipartUpload{
				Parts: []types.CompletedPart{{PartNumber: aws.Int32(1), ETag: part.ETag}},
			},
		})
		completed.Store(true)
		done <- err
	}()

	pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when the copy has started
	if err != nil {
		t.Fatal(err)
	}

	defer pipe.Close() // if the test fails before it writes
	requireAnswers(t, c)
	if completed.Load() {
		t.Error("the upload was completed before its part was read")
	}

	if _, err := pipe.WriteString("part"); err != nil {
		t.Error(err)
	}

	if err := pipe.Close(); err != nil {
		t.Error(err)
	}

	if err := <-done; err != nil {
		t.Fatal(err)
	}

	if got := get(t, c, "big"); got != "part" {
		t.Errorf("the object is %q, want part", got)
	}
}

// requireAnswers reads the key small and writes another key, each within 10 seconds.
func requireAnswers(t *testing.T, c *s3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b-1"), Key: aws.String("small")})
	if err != nil {
		t.Fatalf("read: %v", err)
	}

	if err := out.Body.Close(); err != nil {
		t.Error(err)
	}

	_, err = c.PutObject(ctx, &s3.PutObjectInput{
		Bucket: aws.String("b-1"),
		Key:    aws.String(rand.Text()),
		Body:   strings.NewReader("x"),
	})
	if err != nil {
		t.Fatalf("write: %v", err)
	}
}

// partFile returns the name of the file of the first part of an upload.
func partFile(t *testing.T, dir, upload string) string {
	t.Helper()
	var index struct {
		Uploads map[string]struct{ Parts map[int]struct{ File string } }
	}
	if err := json.Unmarshal([]byte(readText(t, filepath.Join(dir, "b-1", "index.json"))), &index); err != nil {
		t.Fatal(err)
	}

	return index.Uploads[upload].Parts[1].File
}

func enableVersioning(t *testing.T, c *s3.Client) {
	t.Helper()
	_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket:                  aws.String("b-1"),
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}
