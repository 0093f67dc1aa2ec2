// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/filesum"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// BucketAPI are the calls of S3 that a mirror makes.
type BucketAPI interface {
	HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error)
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// Bucket is where files are copied to.
type Bucket struct {
	API    BucketAPI
	Name   string
	Prefix string // of all keys, without slashes at its ends; may be empty
	Region string

	// Endpoint is the URL of another service than AWS's, such as the local region; empty: AWS.
	Endpoint string
}

// URL returns the address of the bucket for machines, for spec.assets.fileRepository.
func (b Bucket) URL() string {
	suffix := ""
	if b.Prefix != "" {
		suffix = "/" + b.Prefix
	}

	host := "s3." + b.Region + "." + partition.OfRegion(b.Region).DNSSuffix

	switch {
	case b.Endpoint != "":
		return strings.TrimRight(b.Endpoint, "/") + "/" + b.Name + suffix
	case strings.Contains(b.Name, "."): // AWS's certificate covers one label before the host
		return "https://" + host + "/" + b.Name + suffix
	default:
		return "https://" + b.Name + "." + host + suffix
	}
}

// key returns the key of the object of a file: upstream's host and path below the prefix.
func (b Bucket) key(f asset.File) string {
	return strings.TrimPrefix(b.Prefix+"/"+strings.TrimPrefix(f.URL, "https://"), "/")
}

// addFiles adds a step for each file that the bucket lacks, or has with another hash.
func (p *Plan) addFiles(ctx context.Context) error {
	b := p.options.Bucket
	if _, err := b.API.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.Name}); err != nil {
		return b.explain(err)
	}

	var errs []error

	for _, f := range p.options.Catalog.Files {
		p.Total++
		action, err := b.compare(ctx, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("compare s3://%s/%s: %w", b.Name, b.key(f), err))
			continue
		}

		if action == "" {
			continue
		}

		p.Steps = append(p.Steps, Step{
			Action: action,
			Asset:  f.Name + " " + f.Version + " " + f.Arch,
			Target: "s3://" + b.Name + "/" + b.key(f),
			run:    func(ctx context.Context) (int64, error) { return p.options.copyFile(ctx, f) },
		})
	}

	return errors.Join(errs...)
}

// compare returns what has to be done so that the bucket has a file: nothing, copy or replace. S3 computed the checksum
// of an object when it was written.
func (b Bucket) compare(ctx context.Context, f asset.File) (string, error) {
	out, err := b.API.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket:       &b.Name,
		Key:          aws.String(b.key(f)),
		ChecksumMode: types.ChecksumModeEnabled,
	})

	var missing *types.NotFound

	switch {
	case errors.As(err, &missing):
		return actionCopy, nil
	case err != nil:
		return "", b.explain(err)
	}

	want, err := checksumOf(f)
	if err == nil && aws.ToString(out.ChecksumSHA256) == want {
		return "", nil
	}

	return actionReplace, err
}

// explain adds the fix to an error of S3. The answer to HEAD has no body, so S3 sends no message with it.
func (b Bucket) explain(err error) error {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return plainerror.Wrap(err)
	}

	switch response.HTTPStatusCode() {
	case http.StatusNotFound:
		return diag.WithHint(
			fmt.Errorf("bucket %s does not exist", b.Name),
			"check its name, or create it with: aws s3api create-bucket --bucket "+b.Name,
		)

	case http.StatusMovedPermanently:
		region := response.Response.Header.Get("X-Amz-Bucket-Region")
		return diag.WithHint(
			fmt.Errorf("bucket %s is in region %s, not %s", b.Name, region, b.Region),
			"give --region "+region,
		)

	case http.StatusForbidden:
		return diag.WithHint(
			errors.New("S3 denied access (403)"),
			"allow s3:ListBucket, s3:GetObject and s3:PutObject; for a bucket of another account also give --bucket-owner",
		)

	default:
		return plainerror.Wrap(err)
	}
}

// checksumOf returns the hash of a file as S3 writes it.
func checksumOf(f asset.File) (string, error) {
	sum, err := hex.DecodeString(f.SHA256)
	if err != nil {
		return "", fmt.Errorf("read the hash of %s %s: %w", f.Name, f.Version, err)
	}

	return base64.StdEncoding.EncodeToString(sum), nil
}

// copyFile copies a file from the folder, else from where the catalogue has it, to the bucket.
func (o Options) copyFile(ctx context.Context, f asset.File) (int64, error) {
	local := filepath.Join(o.Folder, "files", strings.TrimPrefix(f.URL, "https://"))
	if sum, err := (filesum.Cache{}).Sum(local); err == nil && sum == f.SHA256 {
		return o.Bucket.upload(ctx, f, local)
	}

	source, err := o.Catalog.File(f.Name, f.Version, f.Arch) // has the address of the mirror to copy from
	if err != nil {
		return 0, err
	}

	dir, err := os.MkdirTemp("", "slipway-mirror-")
	if err != nil {
		return 0, fmt.Errorf("create a folder for the download: %w", err)
	}

	defer func() { _ = os.RemoveAll(dir) }()
	downloaded := filepath.Join(dir, "file")
	if _, err := fetch.Download(ctx, o.source(), source, downloaded); err != nil {
		return 0, err
	}

	return o.Bucket.upload(ctx, f, downloaded)
}

// upload writes a file to the bucket and returns its size. S3 refuses it if it does not have the hash of the catalogue.
func (b Bucket) upload(ctx context.Context, f asset.File, path string) (int64, error) {
	checksum, err := checksumOf(f)
	if err != nil {
		return 0, err
	}

	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}

	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}

	_, err = b.API.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         &b.Name,
		Key:            aws.String(b.key(f)),
		Body:           in,
		ContentLength:  aws.Int64(info.Size()),
		ChecksumSHA256: &checksum,
	})
	if err != nil {
		return 0, b.explain(err)
	}

	return info.Size(), nil
}
