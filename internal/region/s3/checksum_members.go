// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The shapes of S3 with the type of a checksum and the checksum CRC-64/NVME, which those of aws-sdk-go v1 do not have.
// Members of the same name replace those of the shapes.
type (
	listedObject struct {
		s3.Object

		ChecksumType *string `type:"string"`
	}

	listObjectsOutput struct {
		s3.ListObjectsOutput

		Contents []*listedObject `type:"list" flattened:"true"`
	}

	listObjectsV2Output struct {
		s3.ListObjectsV2Output

		Contents []*listedObject `type:"list" flattened:"true"`
	}

	listedVersion struct {
		s3.ObjectVersion

		ChecksumType *string `type:"string"`
	}

	listObjectVersionsOutput struct {
		s3.ListObjectVersionsOutput

		Versions []*listedVersion `locationName:"Version" type:"list" flattened:"true"`
	}

	listedPart struct {
		s3.Part

		ChecksumCRC64NVME *string `type:"string"`
	}

	listPartsOutput struct {
		s3.ListPartsOutput

		ChecksumType *string       `type:"string"`
		Parts        []*listedPart `locationName:"Part" type:"list" flattened:"true"`
	}

	listedUpload struct {
		s3.MultipartUpload

		ChecksumType *string `type:"string"`
	}

	listMultipartUploadsOutput struct {
		s3.ListMultipartUploadsOutput

		Uploads []*listedUpload `locationName:"Upload" type:"list" flattened:"true"`
	}

	copyObjectResult struct {
		s3.CopyObjectResult

		ChecksumCRC64NVME *string `type:"string"`
		ChecksumType      *string `type:"string"`
	}

	copyObjectOutput struct {
		_ struct{} `type:"structure" payload:"CopyObjectResult"`

		s3.CopyObjectOutput

		CopyObjectResult *copyObjectResult `type:"structure"`
	}

	copyPartResult struct {
		s3.CopyPartResult

		ChecksumCRC64NVME *string `type:"string"`
	}

	uploadPartCopyOutput struct {
		_ struct{} `type:"structure" payload:"CopyPartResult"`

		s3.UploadPartCopyOutput

		CopyPartResult *copyPartResult `type:"structure"`
	}

	completedPart struct {
		s3.CompletedPart

		ChecksumCRC64NVME *string `type:"string"`
	}

	completedMultipartUpload struct {
		Parts []*completedPart `locationName:"Part" type:"list" flattened:"true"`
	}

	completeMultipartUploadInput struct {
		_ struct{} `locationName:"CompleteMultipartUploadRequest" type:"structure" payload:"MultipartUpload"`

		s3.CompleteMultipartUploadInput

		MultipartUpload *completedMultipartUpload `locationName:"CompleteMultipartUpload" type:"structure"`
	}

	completeMultipartUploadOutput struct {
		s3.CompleteMultipartUploadOutput

		ChecksumCRC64NVME *string `type:"string"`
		ChecksumType      *string `type:"string"`
	}
)

// checksumType returns the type of a version's checksums; nil if it has none.
func (v objectVersion) checksumType() *string {
	return sdkshape.StringOrNil(v.Headers[checksumTypeHeader])
}
