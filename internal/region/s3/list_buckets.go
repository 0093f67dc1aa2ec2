// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// listBucketsInput is the input of ListBuckets, whose members aws-sdk-go v1 does not have.
type listBucketsInput struct {
	_ struct{} `type:"structure"`

	BucketRegion      *string `location:"querystring" locationName:"bucket-region" type:"string"`
	ContinuationToken *string `location:"querystring" locationName:"continuation-token" type:"string"`
	MaxBuckets        *int64  `location:"querystring" locationName:"max-buckets" type:"integer"`
	Prefix            *string `location:"querystring" locationName:"prefix" type:"string"`
}

// listBucketsOutput is the output of ListBuckets.
type listBucketsOutput struct {
	_ struct{} `type:"structure"`

	Buckets           []*listedBucket `locationNameList:"Bucket" type:"list"`
	ContinuationToken *string         `type:"string"`
	Owner             *s3.Owner       `type:"structure"`
	Prefix            *string         `type:"string"`
}

// listedBucket is a bucket in the output of ListBuckets. BucketRegion is set in the answers to requests with a member.
type listedBucket struct {
	_ struct{} `type:"structure"`

	BucketArn    *string    `type:"string"`
	BucketRegion *string    `type:"string"`
	CreationDate *time.Time `type:"timestamp"`
	Name         *string    `type:"string"`
}

// maxListedBuckets is S3's limit of the buckets in an answer, and maxTokenBytes that of the length of a continuation token.
const (
	maxListedBuckets = 10000
	maxTokenBytes    = 1024
)

func (s *Service) listBuckets(ctx context.Context, in *listBucketsInput) (*listBucketsOutput, error) {
	if err := wire.Authorize(ctx, wire.AccessCheck{Action: "s3:ListAllMyBuckets"}); err != nil {
		return nil, err
	}

	if err := checkListedRegion(in.BucketRegion, s.cfg.Region); err != nil {
		return nil, err
	}

	page, err := newBucketPage(in)
	if err != nil {
		return nil, err
	}

	out := &listBucketsOutput{Owner: newOwner(), Prefix: in.Prefix}
	s.store.View(func() {
		buckets := s.catalog.buckets
		for _, name := range slices.Sorted(maps.Keys(buckets)) {
			if name <= page.after || !strings.HasPrefix(name, page.prefix) {
				continue
			}

			if len(out.Buckets) == page.limit {
				out.ContinuationToken = new(sdkshape.EncodeToken(*out.Buckets[page.limit-1].Name))
				break
			}

			listed := &listedBucket{
				BucketArn:    new(bucketARN(name)),
				CreationDate: new(buckets[name].Created),
				Name:         &name,
			}
			if *in != (listBucketsInput{}) {
				listed.BucketRegion = &s.cfg.Region
			}

			out.Buckets = append(out.Buckets, listed)
		}
	})

	return out, nil
}

// checkListedRegion refuses a list of the buckets in another region, for which S3 has the endpoint of that region.
func checkListedRegion(asked *string, own string) error {
	switch name := stringValue(asked); {
	case asked == nil || name == own:
		return nil
	case isRegionName(name):
		return wire.NotImplemented("bucket-region: " + name)
	default:
		return newErrorf(invalidArgument, "Argument value %s is not a valid AWS Region", name).
			with(detail("ArgumentName", "bucket-region"))
	}
}

// newBucketPage returns the page of a list of buckets that a request asks for.
func newBucketPage(in *listBucketsInput) (listPage, error) {
	p := listPage{prefix: stringValue(in.Prefix), limit: maxListedBuckets}
	if n := in.MaxBuckets; n != nil {
		if *n < 1 || *n > maxListedBuckets {
			return p, newArgumentError(
				"max-buckets",
				strconv.FormatInt(*n, 10),
				"Argument max-buckets must be an integer between 1 and "+strconv.Itoa(maxListedBuckets),
			)
		}

		p.limit = int(*n)
	}

	if token := stringValue(in.ContinuationToken); token != "" {
		last, ok := sdkshape.DecodeToken(token)
		if !ok || len(token) > maxTokenBytes {
			return p, newTokenError(token)
		}

		p.after = last
	}

	return p, nil
}

// newTokenError returns the error for a continuation token that no list made.
func newTokenError(token string) error {
	return newArgumentError("continuation-token", token, "The continuation token provided is incorrect")
}
